"""The key map: one place from which bindings, footer and help are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from textual.binding import Binding, BindingType

When = Literal["always", "live", "replay"]


class Key(NamedTuple):
    """A key, or several that do the same."""

    keys: str
    """As the framework names them, parted by commas."""
    shown: str
    """As a person reads them."""
    action: str
    footer: str
    """Word in the footer; empty where there is none."""
    help: str
    """Sentence in the help."""
    group: str
    when: When = "always"


_PLAYER: tuple[Key, ...] = (
    Key("space", "space", "play_or_pause", "play/pause", "play or pause", "replay", "replay"),
    Key(
        "left", "\u2190", "seek(-1)", "", "back by 5 %, at least 10 s where the run is long enough", "replay", "replay"
    ),
    Key("right", "\u2192", "seek(1)", "", "forward by as much", "replay", "replay"),
    Key("left_square_bracket,less_than_sign", "[ <", "speed(-1)", "", "half the speed", "replay", "replay"),
    Key("right_square_bracket,greater_than_sign", "] >", "speed(1)", "", "twice the speed", "replay", "replay"),
)

HANDS: tuple[Key, ...] = (
    Key("y", "y", "app.copy_panel", "", "copy the selected panel as text to the clipboard", "view"),
    Key("e", "e", "app.export_panel", "", "write the selected panel to a file: text, CSV or SVG", "view"),
    Key("t", "t", "app.next_theme", "", "next theme: dark, light, colour-blind safe, mono", "view"),
    Key("u", "u", "app.undo_view", "", "undo the last change of the view", "view"),
    Key("ctrl+p", "ctrl+p", "app.command_palette", "", "find any action by its name", "view"),
)
"""What every screen has; the application does it."""

LOG: tuple[Key, ...] = (
    Key("slash", "/", "search", "", "search by regular expression, live as typed; enter keeps it, esc drops it", "log"),
    Key("n", "n", "next_hit(1)", "", "next line that the search finds", "log"),
    Key("N,shift+n", "N", "next_hit(-1)", "", "the one before", "log"),
    Key("f", "f", "next_source", "", "lines of one process only, then of the next one, then of all", "log"),
    Key("v", "v", "next_level", "", "all lines, warnings and errors, errors alone", "log"),
    Key("w", "w", "toggle_wrap", "", "wrap long lines, or cut them", "log"),
)
"""In force while the log is selected."""

MONITOR: tuple[Key, ...] = (
    Key("q", "q", "leave", "detach", "leave this screen; training goes on", "run"),
    Key("c", "c", "checkpoint", "checkpoint", "ask the run to save a checkpoint now", "run", "live"),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "run", "live"),
    *_PLAYER,
    Key("home", "home", "home", "", "to the beginning: of the replay, or of the panel", "move"),
    Key("end", "end", "end", "", "to the end: of the replay, or of the panel", "move"),
    *(
        Key(
            str(number),
            str(number),
            f"select({number})",
            "",
            "select this panel; again: full screen",
            "panels",
        )
        for number in range(1, 9)
    ),
    Key("tab", "tab", "cycle(1)", "", "select the next panel", "panels"),
    Key("shift+tab", "shift+tab", "cycle(-1)", "", "select the panel before", "panels"),
    Key("enter,z", "enter z", "maximise", "full screen", "selected panel over the whole screen, and back", "panels"),
    Key("escape", "esc", "restore", "", "back from the full screen", "panels"),
    Key("l", "l", "toggle_log", "", "y axis of the loss linear or logarithmic", "panels"),
    Key(
        "p",
        "p",
        "pictures",
        "pictures",
        "pictures of a few predictions over the whole terminal, where the task draws some",
        "panels",
    ),
    Key("x", "x", "skipped", "", "the examples that were left out; the header tells how many, if any", "panels"),
    Key("down,j", "\u2193 j", "scroll(1)", "", "scroll the selected panel down", "move"),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll the selected panel up", "move"),
    Key("pagedown", "page down", "page(1)", "", "scroll it down by a page", "move"),
    Key("pageup", "page up", "page(-1)", "", "scroll it up by a page", "move"),
    Key("G,shift+g", "G", "follow", "", "back to where the panel follows the newest", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "run"),
    *HANDS,
)

PICTURES: tuple[Key, ...] = (
    Key("p,escape,q", "p esc q", "close", "back", "back to the run", "pictures"),
    *_PLAYER,
    Key("down,j", "\u2193 j", "scroll(1)", "scroll", "scroll down", "pictures"),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll up", "pictures"),
    Key("pagedown", "page down", "page(1)", "", "down by a page", "pictures"),
    Key("pageup", "page up", "page(-1)", "", "up by a page", "pictures"),
    Key("home,g", "home g", "scroll(-1000000)", "", "to the first example", "pictures"),
    Key("end,G,shift+g", "end G", "scroll(1000000)", "", "to the last example", "pictures"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "pictures"),
    *HANDS,
)

RUNS: tuple[Key, ...] = (
    Key("q", "q", "leave", "quit", "leave; nothing that trains is touched", "run"),
    Key("enter", "enter", "open", "open", "open the run: live while it trains, as a replay once it ended", "runs"),
    Key("slash", "/", "filter", "filter", "show some: words, -words, lr>=0.001, state=done; all must hold", "runs"),
    Key("escape", "esc", "back", "", "show all again; leave where all are shown", "runs"),
    Key("o", "o", "next_order", "order", "order by the next column", "runs"),
    Key("O,shift+o", "O", "reverse", "", "turn the order round", "runs"),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "runs"),
    Key("w", "w", "checkpoint", "save", "ask the run to write a checkpoint now", "runs"),
    Key("r", "r", "reload", "reload", "read every run again", "runs"),
    Key("down,j", "\u2193 j", "move(1)", "", "next run", "move"),
    Key("up,k", "\u2191 k", "move(-1)", "", "run before", "move"),
    Key("pagedown", "page down", "page(1)", "", "nearly a screen down", "move"),
    Key("pageup", "page up", "page(-1)", "", "nearly a screen up", "move"),
    Key("home,g", "home g", "move(-1000000)", "", "first run", "move"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last run", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "run"),
)


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """The map as bindings."""
    return [Binding(key.keys, key.action, key.footer or key.help, show=False) for key in keys]


def in_force(keys: Iterable[Key], *, replaying: bool) -> list[Key]:
    """The keys that do something in a live view, or in a replay."""
    unfit: When = "live" if replaying else "replay"
    return [key for key in keys if key.when != unfit]
