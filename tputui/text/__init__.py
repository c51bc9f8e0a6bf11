"""Snapshots as plain text and JSON: the lines of `--no-ui`, and the output of `show`."""
