"""Commands of a user with the newest frameworks. They run with the Python of .venv-newest; see .ci/newest."""
