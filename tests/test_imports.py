"""Costs and side effects of imports, each measured in a fresh interpreter."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import tputui
from benchmarks import code_size

ROOT = Path(__file__).parent.parent

HEAVY = {"torch", "torch_xla", "numpy", "textual", "rich", "psutil", "engine", "sklearn", "zstandard"}


def modules_of(package: str) -> list[str]:
    root = __import__(package)
    return sorted(module.name for module in pkgutil.walk_packages(root.__path__, f"{package}."))


DRAWING = ("tputui.ui", "tputui.report")
LIGHT = [name for name in modules_of("tputui") if not name.startswith(DRAWING) and "__main__" not in name]
SCREENS = [name for name in modules_of("tputui") if name.startswith(DRAWING)]

PROBE = """
import json, locale, logging, os, signal, sys, threading
def state():
    return {
        "environment": dict(os.environ),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "signals": [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "log handlers": [str(handler) for handler in logging.getLogger().handlers],
        "locale": locale.setlocale(locale.LC_ALL),
        "directory": os.getcwd(),
    }
before = state()
for name in sys.argv[1:]:
    __import__(name)
after = state()
print(json.dumps({
    "changed": [key for key in before if before[key] != after[key]],
    "modules": sorted(sys.modules),
    "roots": sorted({name.partition(".")[0] for name in sys.modules}),
}))
"""


def fresh_import(*modules: str) -> dict[str, list[str]]:
    """The modules loaded and the state changed by importing the modules in a fresh interpreter."""
    command = [sys.executable, "-c", PROBE, *modules]
    printed: dict[str, list[str]] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return printed


def test_nothing_heavy_is_imported_outside_the_screens() -> None:
    if set(fresh_import(*LIGHT)["roots"]) & HEAVY:
        # One by one, to name the modules.
        guilty = {module: set(fresh_import(module)["roots"]) & HEAVY for module in LIGHT}
        raise AssertionError({module: heavy for module, heavy in guilty.items() if heavy})


def test_the_screens_need_neither_torch_nor_numpy() -> None:
    loaded = set(fresh_import(*SCREENS)["roots"])
    assert loaded & {"torch", "torch_xla", "numpy", "engine"} == set()


def test_html_is_drawn_without_a_terminal_library() -> None:
    loaded = set(fresh_import(*(name for name in SCREENS if name.startswith("tputui.report")))["roots"])
    assert loaded & {"textual", "psutil", "PIL", "zstandard"} == set()


def test_the_first_frame_waits_neither_for_what_reads_runs_nor_for_what_writes_them() -> None:
    later = {
        *("tputui.session.session", "tputui.ui.monitor.screen", "tputui.diagnosis.diagnose", "tputui.remote.opening"),
        *("tputui.telemetry.redaction", "textual.drivers.web_driver", "ctypes", "tputui.state.snapshot"),
    }
    loaded = fresh_import("tputui.cli.main", "tputui.cli.attach", "tputui.ui.app")["modules"]
    assert later.intersection(loaded) == set()


def test_nothing_happens_at_import() -> None:
    assert fresh_import(*LIGHT, *SCREENS)["changed"] == []


def test_no_module_imports_itself_through_others() -> None:
    modules = [code_size.read(path, ROOT) for path in code_size.files_of(ROOT)]
    assert len(modules) > 300
    assert code_size.cycles_of(modules) == []


def test_version_is_defined_once() -> None:
    assert tputui.__version__.count(".") == 2
