"""Commands without torch and numpy print what to install and exit with code 7."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.helpers import one_sentence, tputui
from tests.engine.workers import make

HIDDEN = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize("hidden", [["torch", "numpy"], ["torch"]], ids=" ".join)
@pytest.mark.parametrize(
    "words", [["predict", "RUN", "--split", "valid"], ["export", "RUN"]], ids=lambda words: words[0]
)
def test_base_install_names_package_needed_for_weights(tmp_path: Path, words: list[str], hidden: list[str]) -> None:
    run_dir = make(tmp_path, "sent").dir
    (run_dir / "checkpoints" / "best.pt").write_bytes(b"weights")
    # Every Python process imports a module of this name at its start.
    (tmp_path / "sitecustomize.py").write_text(HIDDEN.format(packages=hidden))
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    result = tputui(*(run_dir if word == "RUN" else word for word in words), cwd=tmp_path, PYTHONPATH=path)
    assert result.code == 7
    are = "are" if len(hidden) > 1 else "is"
    assert one_sentence(result) == f"tputui: {' and '.join(hidden)} {are} not installed; pip install 'tputui[xla]'"
    assert result.out == ""
