"""Prints the score of every form: `python -m tests.forms [NAME ...]`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.forms import form


def main(names: list[str]) -> None:
    """Prints a line for each form, what is wrong in it, and the score of all."""
    num_right = num_all = 0
    paths = [path for path in sorted(form.FOLDER.glob("*.toml")) if not names or path.stem in names]
    for path in paths:
        known = form.read(path)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = str(Path(folder) / "cache")
            result = form.score(known, form.tell(known, Path(folder)))
        num_right, num_all = num_right + result.num_right, num_all + result.num_all
        sys.stdout.write(f"{result.share:6.3f}  {path.stem}\n")
        for fault in result.faults:
            sys.stdout.write(f"        {fault}\n")
    sys.stdout.write(f"{num_right / max(1, num_all):6.3f}  {len(paths)} forms, {num_right} of {num_all}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
