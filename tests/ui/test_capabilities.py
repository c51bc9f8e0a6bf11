"""Capabilities of the terminal from the environment."""

from __future__ import annotations

import pytest

from tputui.ui.terminal.themes import Capabilities, capabilities_of, supports_unicode

UTF8 = {"TERM": "xterm-256color", "LANG": "de_DE.UTF-8"}


@pytest.mark.parametrize(
    ("environ", "known"),
    [
        ({}, True),
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "en_US.utf8"}, True),
        ({"LANG": "de_DE.UTF-8@euro"}, True),
        ({"LANG": "C"}, False),
        ({"LANG": "POSIX"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),  # set by Python itself in the C locale
        ({"LANG": "de_DE.ISO-8859-1", "LC_CTYPE": "C.UTF-8"}, False),  # also if the locale is not installed
        ({"LC_CTYPE": "C.UTF-8"}, True),
        ({"LANG": "C.UTF-8", "TERM": "dumb"}, False),
        ({"LANG": "C.UTF-8", "TERM": "linux"}, False),
        ({"LANG": "C", "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver"}, True),
    ],
)
def test_which_terminals_know_more_than_ascii(environ: dict[str, str], known: bool) -> None:
    assert supports_unicode(environ) is known


def test_capabilities_by_environment() -> None:
    assert capabilities_of(UTF8) == Capabilities(ascii_only=False, colour=True)
    assert capabilities_of(UTF8, ascii_only=True) == Capabilities(ascii_only=True, colour=True)
    assert capabilities_of({**UTF8, "NO_COLOR": ""}) == Capabilities(ascii_only=False, colour=False)
