"""What the run list says when it shows no run, and the keys that lead on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tputui import formatting as fmt
from tputui.ui.base.keymap import Key
from tputui.ui.render.lines import Line, Span, clean, fit, width_of, wrap
from tputui.ui.runs.filter import RunFilter, unknown_keys
from tputui.ui.runs.rows import Listing

_CARD_WIDTH = 64
_CARD_MIN_WIDTH = 40
_CARD_LINES = 5
"""Lines of a card besides its text: two of the frame, two of padding, one between sentence and keys."""


class Empty(NamedTuple):
    """Why there are no rows."""

    sentences: tuple[str, ...]
    keys: tuple[tuple[str, str], ...] = ()
    """Keys that lead on, with what they do. With them the text is a card in the middle."""

    def draw(self, width: int, height: int) -> list[Line]:
        """The sentences, or the card if there is room."""
        if self.keys and width >= _CARD_MIN_WIDTH:
            inner = min(_CARD_WIDTH, width - 4) - 4
            sentences = [piece for text in self.sentences for piece in wrap(text, inner)]
            if len(sentences) + len(self.keys) + _CARD_LINES <= height:
                return _card(sentences, self.keys, inner, width, height)
        hints = [f"{key}  {action}" for key, action in self.keys]
        return [[], *([Span(f"  {piece}")] for text in (*self.sentences, *hints) for piece in wrap(text, width - 4))]


def _card(sentences: Sequence[str], keys: Sequence[tuple[str, str]], inner: int, width: int, height: int) -> list[Line]:
    names = max(len(key) for key, _ in keys)
    body: list[Line] = [[], *([Span(sentence, "strong")] for sentence in sentences), []]
    body += [[Span(f"{key:>{names}}", "accent"), Span(f"  {action}")] for key, action in keys]
    body.append([])
    rule = "\u2500" * (inner + 2)
    left = " " * ((width - inner - 4) // 2)
    frame: list[Line] = [[Span(f"{left}\u256d{rule}\u256e", "dim")]]
    for line in body:
        fitted = fit(line, inner)
        gap = " " * (inner - width_of(fitted))
        frame.append([Span(f"{left}\u2502 ", "dim"), *fitted, Span(f"{gap} \u2502", "dim")])
    frame.append([Span(f"{left}\u2570{rule}\u256f", "dim")])
    return [*([[]] * ((height - len(frame)) // 2)), *frame]


def empty_keys(keys: Sequence[Key], *, may_start: bool) -> list[Key]:
    """The footer keys that act if there are no runs; enter opens the demo."""
    demo = [key._replace(footer="digits demo") for key in keys if key.action == "open" and may_start]
    return [*(key for key in keys if key.action in ("leave", "new")), *demo, *(k for k in keys if k.action == "help")]


def empty_text(
    runs_dir: Path, listing: Listing | None, run_filter: RunFilter, *, may_start: bool, num_hidden: int = 0
) -> Empty:
    """Why the table is empty, and what to do next."""
    directory = clean(str(runs_dir))
    if listing is None:
        return Empty((f"Looking for runs in {directory} ...",))
    if listing.error is not None:
        return Empty((clean(listing.error), "Choose another directory with tputui --runs-dir DIR or $TPUTUI_RUNS."))
    listed = list(listing.rows.values())
    if listed:
        if num_hidden == len(listed):
            return Empty((f"{fmt.counted(num_hidden, 'run')}, all archived. Press a to show them.",))
        unknown = unknown_keys(run_filter, listed)
        reason = f"No run has a key called {', '.join(unknown)}." if unknown else "No run matches the filter."
        return Empty((f"{reason} Press esc to show all {len(listed) - num_hidden} runs.",))
    none = f"No runs in {directory} yet."
    if not may_start:
        return Empty((none, "Start one with `tputui run CONFIG`."))
    keys = (
        ("n", "new run: choose a configuration and start it"),
        ("enter", "digits demo: set up a small network"),
        ("?", "help"),
    )
    return Empty((none,), keys)
