"""Writes what is observed of which framework into docs/guide/frameworks.md, from what the tests in tests/newest showed.

`.ci/newest --write` stores that in docs/support.json.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

RESULTS = Path(__file__).with_name("support.json")
PAGE = Path(__file__).parent / "guide" / "frameworks.md"
BLOCK = re.compile(r"(?<=<!-- made by docs/make_support.py -->\n).*?(?=<!-- end -->)", re.S)


def page() -> str:
    """The page with the table of the stored results."""
    versions: dict[tuple[str, str], list[str]] = {}
    for row in json.loads(RESULTS.read_text()):
        for what in row["observed"]:
            versions.setdefault((row["framework"], what), []).append(row["version"])
    rows = [f"| {name} | {what} | {', '.join(versions[name, what])} |" for name, what in versions]
    table = "\n".join(["| | observed | tested with |", "| --- | --- | --- |", *rows])
    return BLOCK.sub(lambda _: f"\n{table}\n\n", PAGE.read_text())


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())
    sys.stdout.write(f"wrote {PAGE}\n")


if __name__ == "__main__":
    main()
