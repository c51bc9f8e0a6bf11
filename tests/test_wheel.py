"""The wheel: it is built from the source archive, installs beside its dependencies alone, and works from anywhere."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests import recorded
from tputui import __version__

ROOT = Path(__file__).parent.parent


def done(*words: str | Path, cwd: Path) -> str:
    """What a command printed, which must succeed."""
    environ = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # pip asks the compilers that it finds for their versions, and one of them writes its settings.
    environ["HOME"] = os.fspath(cwd)
    result = subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_wheel_installs_into_an_empty_environment_and_shows_a_run(tmp_path: Path) -> None:
    done(sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    environment = tmp_path / "environment"
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps"]
    done(*pip, tmp_path / f"dist/tputui-{__version__}-py3-none-any.whl", cwd=tmp_path)
    packages = next(environment.glob("lib/python*/site-packages"))
    # The dependencies of the environment of the tests, without the checkout that is installed there.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    run_dir = recorded.write_run(tmp_path / "runs", run="20261126-101500-digits")

    where = done(python, "-c", "import engine, tputui; print(tputui.__file__, engine.__file__)", cwd=tmp_path)
    assert [Path(path).parents[1] for path in where.split()] == [packages, packages]
    tputui = environment / "bin/tputui"
    assert done(tputui, "--version", cwd=tmp_path) == f"tputui {__version__}\n"
    assert run_dir.name in done(tputui, "runs", cwd=tmp_path)
    assert "digits" in done(tputui, "data", "list", cwd=tmp_path)
    assert "synthetic-pod" in done(tputui, "demo", "--help", cwd=tmp_path)
    assert "RuntimeError" in done(tputui, "demo", "failure", "--no-ui", cwd=tmp_path)
    recordings = packages / "tputui/recordings"
    assert sum(path.stat().st_size for path in recordings.rglob("*") if path.is_file()) < 1_000_000
    about = packages / f"tputui-{__version__}.dist-info"
    assert (about / "licenses/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_release_is_the_one_of_the_changelog_and_the_citation() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()

    assert f"\n## {__version__} - " in changelog
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
