"""Records what tputui observes of which version: the tests that passed, by framework. `--write` updates the table."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[2] / "docs" / "support.json"
_Key = tuple[str, str, str]
"""Framework, package and what is observed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help=f"write what is observed to {TABLE.name}")


def pytest_configure(config: pytest.Config) -> None:
    for name in list(os.environ):
        if name.startswith("TPUTUI_"):
            del os.environ[name]
    # The processes of xdist send their reports to this one.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Support())


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.user_properties += [("supports", list(mark.args)) for mark in item.iter_markers("supports")]


class Support:
    """What is observed, by the tests that show it."""

    def __init__(self) -> None:
        self._passed: dict[_Key, bool] = {}
        """Whether all of its tests passed."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if (report.when == "call" and not report.skipped) or report.failed:
            for name, value in report.user_properties:
                if name == "supports" and isinstance(value, list):
                    framework, package, what = value
                    key = (framework, package, what)
                    self._passed[key] = report.passed and self._passed.get(key, True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Writes the table that the documentation shows, or compares with it."""
        if session.config.getoption("--write"):
            _write(self._passed)
            return
        said = {(row["framework"], what) for row in json.loads(TABLE.read_text()) for what in row["observed"]}
        if missing := sorted({(framework, what) for framework, _, what in self._passed} - said):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            terminal = session.config.get_terminal_writer()
            terminal.line()
            for framework, what in missing:
                terminal.line(f"not in docs/support.json, run .ci/newest --write: {framework}: {what}", red=True)


def _write(outcomes: dict[_Key, bool]) -> None:
    """Adds what was observed of the versions that ran, and removes what was not."""
    table = {(row["framework"], row["version"]): set(row["observed"]) for row in json.loads(TABLE.read_text())}
    for (framework, package, what), passed in outcomes.items():
        observed = table.setdefault((framework, version(package).partition("+")[0]), set())
        observed.discard(what)
        if passed:
            observed.add(what)
    rows = [
        {"framework": name, "version": number, "observed": sorted(observed)}
        for (name, number), observed in sorted(table.items())
    ]
    TABLE.write_text(json.dumps(rows, indent=1) + "\n")


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's reaches a test, and nothing of a test the user's directories."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("USE_TORCH_XLA", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
