"""Colours that stay apart for colour-blind eyes (after Okabe and Ito), on a dark ground."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="tputui-dark",
    primary="#5ab4f0",
    secondary="#7fd1c7",
    accent="#5ab4f0",
    success="#3ecf9b",
    warning="#f0b429",
    error="#ff7a5c",
    foreground="#dfe6ee",
    background="#0e1218",
    surface="#161c25",
    panel="#1c2430",
    dark=True,
)
