"""The key map: one place from which bindings, footer and help are made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from textual.binding import Binding, BindingType

When = Literal["always", "live", "timed"]
"""`live`: not in a recording. `timed`: where time can be played, in a recording and in a live view that keeps it."""


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
    Key(
        "space",
        "space",
        "play_or_pause",
        "play/pause",
        "play or pause; a live view stands still, or goes on",
        "time",
        "timed",
    ),
    Key("left", "\u2190", "seek(-1)", "", "back in time by 5 %, at least 10 s; a live run goes on", "time", "timed"),
    Key("right", "\u2192", "seek(1)", "", "forward by as much", "time", "timed"),
    Key("left_square_bracket", "[", "speed(-1)", "", "half the speed", "time", "timed"),
    Key("right_square_bracket", "]", "speed(1)", "", "twice the speed", "time", "timed"),
    Key("b", "b", "back_to_now", "now", "back to now; in a replay to its end", "time", "timed"),
)

_EVENTS: tuple[Key, ...] = (
    Key("n", "n", "event(1)", "", "next event: moves the time where it is played, else the cursor", "time"),
    Key("N,shift+n", "N", "event(-1)", "", "event before", "time"),
)

_CHART: tuple[Key, ...] = (
    Key(
        "v",
        "v",
        "next_view(1)",
        "view",
        "next view: band, a line a core, a small chart a core, map of core and step",
        "chart",
    ),
    Key("V,shift+v", "V", "next_view(-1)", "", "view before", "chart"),
    Key("plus,equals_sign", "+", "smooth(1)", "", "smoother; what was measured stays behind", "chart"),
    Key("minus", "-", "smooth(-1)", "", "less smooth", "chart"),
    Key("l", "l", "toggle_log", "", "y axis linear or logarithmic; the map: from the others, or the loss", "chart"),
    Key("x", "x", "next_x", "", "x axis: step, epoch, time, examples", "chart"),
    Key("i", "i", "zoom(1)", "", "zoom in around the cursor, else at the newest; also the wheel", "chart"),
    Key("o", "o", "zoom(0)", "", "zoom out", "chart"),
    Key("a", "a", "show_all", "", "all of the run", "chart"),
    Key("less_than_sign", "<", "pan(-1)", "", "earlier steps, where zoomed in", "chart"),
    Key("greater_than_sign", ">", "pan(1)", "", "later steps", "chart"),
    Key(
        "comma", ",", "cursor(-1)", "", "cursor that reads values to the left; also a click; esc takes it away", "chart"
    ),
    Key("full_stop", ".", "cursor(1)", "", "cursor to the right", "chart"),
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
    Key("slash", "/", "search", "", "only lines that a regular expression finds, live as typed; enter keeps it", "log"),
    Key("escape", "esc", "drop_search", "", "drop the search, staying at the selected line", "log"),
    Key("f", "f", "next_lane", "", "lines of one process or core only, then of the next one, then of all", "log"),
    Key("v", "v", "next_level", "", "all lines, warnings and errors, errors alone", "log"),
    Key("w", "w", "toggle_wrap", "", "wrap long lines, or cut them", "log"),
    Key("a", "a", "older", "", "read the lines before the first one from the journals", "log"),
)
"""In force while the log is selected."""

MONITOR: tuple[Key, ...] = (
    Key("q", "q", "leave", "detach", "leave this screen; training goes on", "run"),
    Key("c", "c", "checkpoint", "checkpoint", "ask the run to save a checkpoint now", "run", "live"),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "run", "live"),
    *_PLAYER,
    *_EVENTS,
    Key(
        "home",
        "home",
        "home",
        "",
        "to the beginning: of a replay, of a run that is over; else of the panel, as of the log",
        "move",
    ),
    Key("end", "end", "end", "", "to the end: of a replay; back to now; else to the end of the panel", "move"),
    *(
        Key(
            str(number),
            str(number),
            f"select({number})",
            "",
            "select this panel; again: full screen",
            "panels",
        )
        for number in (*range(1, 10), 0)
    ),
    Key("tab", "tab", "cycle(1)", "", "select the next panel", "panels"),
    Key("shift+tab", "shift+tab", "cycle(-1)", "", "select the panel before", "panels"),
    Key(
        "enter",
        "enter",
        "open",
        "full",
        "selected panel over the whole screen, and back; to a chosen event",
        "panels",
    ),
    Key("z", "z", "maximise", "", "selected panel over the whole screen, and back, whatever is chosen", "panels"),
    Key("escape", "esc", "restore", "", "take the cursor away, then back from the full screen", "panels"),
    *_CHART,
    Key("f", "f", "next_kind", "", "events of one kind, then of the next, then all", "events"),
    Key(
        "p",
        "p",
        "pictures",
        "pictures",
        "pictures of a few predictions over the whole terminal, where the task draws some",
        "panels",
    ),
    Key(
        "X,shift+x",
        "X",
        "stacks",
        "",
        "X-ray: ask every process where it is, its Python stacks; nothing is stopped",
        "run",
    ),
    Key("d", "d", "skipped", "", "data that was left out: the header tells how many examples, if any", "panels"),
    Key(
        "down,j",
        "\u2193 j",
        "scroll(1)",
        "",
        "scroll the selected panel down; read the row below in the map of cores",
        "move",
    ),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll the selected panel up; read the row above", "move"),
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
    Key("n", "n", "new", "new run", "start a run: pick a configuration, see and change every field", "run"),
    Key("enter", "enter", "open", "open", "open the run: live while it trains, as a replay once it ended", "runs"),
    Key("slash", "/", "filter", "filter", "show some: words, -words, lr>=0.001, state=done; all must hold", "runs"),
    Key("escape", "esc", "back", "", "show all again; leave where all are shown", "runs"),
    Key("o", "o", "next_order", "order", "order by the next column", "runs"),
    Key("O,shift+o", "O", "reverse", "", "turn the order round", "runs"),
    Key("space", "space", "mark", "", "mark the run, or take its mark away", "runs"),
    Key(
        "c",
        "c",
        "compare",
        "compare",
        "lay 2 to 8 marked runs side by side; the one under the cursor is the base",
        "runs",
    ),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "runs"),
    Key("w", "w", "checkpoint", "save", "ask the run to write a checkpoint now", "runs"),
    Key("r", "r", "reload", "", "read every run again", "runs"),
    Key("down,j", "\u2193 j", "move(1)", "", "next run", "move"),
    Key("up,k", "\u2191 k", "move(-1)", "", "run before", "move"),
    Key("pagedown", "page down", "page(1)", "", "nearly a screen down", "move"),
    Key("pageup", "page up", "page(-1)", "", "nearly a screen up", "move"),
    Key("home,g", "home g", "move(-1000000)", "", "first run", "move"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last run", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "run"),
    *HANDS,
)

COMPARE: tuple[Key, ...] = (
    Key("q", "q", "leave", "back", "leave the comparison; nothing that trains is touched", "runs"),
    Key("n,right_square_bracket", "n ]", "choose(1)", "next", "choose the next run", "runs"),
    Key("p,left_square_bracket", "p [", "choose(-1)", "", "choose the run before", "runs"),
    Key("b", "b", "rebase", "base", "have the others stand beside the chosen run", "runs"),
    Key("space", "space", "hide", "hide", "hide the curve of the chosen run, or show it again", "runs"),
    Key("a", "a", "show_all", "", "show every curve", "runs"),
    Key("o", "o", "open", "open", "open the chosen run: live while it trains, as a replay once it ended", "runs"),
    Key("m", "m", "next_meter(1)", "meter", "chart the next meter by epoch; after the last one the loss", "chart"),
    Key("M,shift+m", "M", "next_meter(-1)", "", "chart the meter before", "chart"),
    Key("x", "x", "next_x", "", "x axis: step, epoch, time from the start, examples", "chart"),
    Key("l", "l", "toggle_log", "", "y axis linear or logarithmic", "chart"),
    Key(
        "plus,equals_sign", "+", "smooth(1)", "", "smoother; of the chosen run what was measured stays behind", "chart"
    ),
    Key("minus", "-", "smooth(-1)", "", "less smooth", "chart"),
    Key("left,comma", "\u2190 ,", "cursor(-1)", "", "cursor that reads every run to the left; also a click", "chart"),
    Key("right,full_stop", "\u2192 .", "cursor(1)", "", "cursor to the right", "chart"),
    Key("shift+left,less_than_sign", "<", "cursor(-10)", "", "cursor ten cells to the left", "chart"),
    Key("shift+right,greater_than_sign", ">", "cursor(10)", "", "cursor ten cells to the right", "chart"),
    *(
        Key(str(number), str(number), f"select({number})", "", "select this panel; again: full screen", "panels")
        for number in range(1, 5)
    ),
    Key("tab", "tab", "cycle(1)", "", "select the next panel", "panels"),
    Key("shift+tab", "shift+tab", "cycle(-1)", "", "select the panel before", "panels"),
    Key("enter,z", "enter z", "maximise", "", "selected panel over the whole screen, and back", "panels"),
    Key("escape", "esc", "restore", "", "take the cursor away, then back from the full screen, then leave", "panels"),
    Key("down,j", "\u2193 j", "scroll(1)", "", "scroll the selected panel down; in the runs the next run", "move"),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll it up; in the runs the run before", "move"),
    Key("pagedown", "page down", "page(1)", "", "scroll it down by a page", "move"),
    Key("pageup", "page up", "page(-1)", "", "scroll it up by a page", "move"),
    Key("home,g", "home g", "scroll(-1000000)", "", "to its beginning", "move"),
    Key("end,G,shift+g", "end G", "scroll(1000000)", "", "to its end", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "runs"),
    *HANDS,
)

OFFERS: tuple[Key, ...] = (
    Key("enter", "enter", "take", "edit", "see every field of this configuration, change some, start", "new run"),
    Key("r", "r", "resume", "resume", "the same, going on from the last checkpoint of this run", "new run"),
    Key("escape,q", "esc", "close", "back", "back to the runs; nothing is started", "new run"),
    Key("down,j", "\u2193 j", "move(1)", "", "next configuration", "move"),
    Key("up,k", "\u2191 k", "move(-1)", "", "configuration before", "move"),
    Key("pagedown", "page down", "page(1)", "", "nearly a screen down", "move"),
    Key("pageup", "page up", "page(-1)", "", "nearly a screen up", "move"),
    Key("home,g", "home g", "move(-1000000)", "", "first configuration", "move"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last configuration", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "new run"),
    *HANDS,
)

LAUNCH: tuple[Key, ...] = (
    Key("s", "s", "start", "start", "start the run, detached, and watch it", "new run"),
    Key("enter", "enter", "edit", "edit", "type a value; enter keeps it, esc puts back what was there", "fields"),
    Key("right,space", "\u2192", "turn(1)", "", "next choice, where there are few", "fields"),
    Key("left", "\u2190", "turn(-1)", "", "choice before", "fields"),
    Key("r,backspace", "r", "reset", "reset", "put back what the field came with", "fields"),
    Key("slash", "/", "find", "find", "show the fields whose key or documentation has these words", "fields"),
    Key("w", "w", "write", "save as", "write the configuration to a new TOML file", "new run"),
    Key(
        "escape,q",
        "esc",
        "close",
        "back",
        "all fields again; then back, asking first where something was changed",
        "new run",
    ),
    Key("down,j", "\u2193 j", "move(1)", "", "next field", "move"),
    Key("up,k", "\u2191 k", "move(-1)", "", "field before", "move"),
    Key("tab", "tab", "table(1)", "", "next table", "move"),
    Key("shift+tab", "shift+tab", "table(-1)", "", "table before", "move"),
    Key("pagedown", "page down", "page(1)", "", "nearly a screen down", "move"),
    Key("pageup", "page up", "page(-1)", "", "nearly a screen up", "move"),
    Key("home,g", "home g", "move(-1000000)", "", "first field", "move"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last field", "move"),
    Key("n", "n", "next_problem", "", "next field that is wrong or was changed", "move"),
    Key("question_mark", "?", "help", "help", "show or leave this help", "new run"),
    *HANDS,
)


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """The map as bindings."""
    return [Binding(key.keys, key.action, key.footer or key.help, show=False) for key in keys]


def in_force(keys: Iterable[Key], *, replaying: bool, timed: bool | None = None) -> list[Key]:
    """The keys that do something in a live view, or in a replay; `timed` where time can be played, as in any replay."""
    unfit = set[When]()
    if replaying:
        unfit.add("live")
    if not (replaying if timed is None else timed):
        unfit.add("timed")
    return [key for key in keys if key.when not in unfit]
