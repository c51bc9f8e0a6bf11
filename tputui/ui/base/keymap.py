"""The key map, from which bindings, footer, help and command palette are generated."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal, NamedTuple

from textual.binding import Binding, BindingType

When = Literal["always", "live", "timed"]
"""When a key works. `live`: not in a recording. `timed`: in a recording, and in a live view with a history."""


class Key(NamedTuple):
    """A key, or several keys with the same action."""

    keys: str
    """Key names of Textual, separated by commas."""
    shown: str
    """Key names shown to the user."""
    action: str
    footer: str
    """Word in the footer; empty if the footer does not show the key."""
    help: str
    """Sentence in the help."""
    group: str
    when: When = "always"
    title: str = ""
    """Title in the palette, if `help` is not clear without its context."""
    also: str = ""
    """Other words that find it."""


def on_widget(widget_id: str, action: str) -> str:
    """An action of the widget with this id on the current screen, regardless of the focus."""
    return f"app.on_widget({widget_id!r}, {action!r})"


_body, _loss, _player = (functools.partial(on_widget, widget_id) for widget_id in ("body", "loss", "player"))

HELP = "help"
PLAY_OR_PAUSE = _player("play_or_pause")
BACK_TO_NOW = _player("back_to_now")
SELECT_HOSTS = _body("select('h')")
NEXT_VALUE = on_widget("hosts", "next_value")

# fmt: off
# One or two lines per key, so that the map reads as a table.
_PLAYER: tuple[Key, ...] = (
    Key("space", "space", PLAY_OR_PAUSE, "play/pause", "play or pause; pauses or continues a live view", "time",
        "timed", title="play or pause", also="resume halt"),
    Key("left", "\u2190", _player("seek(-1)"), "", "back in time by 5 % (short runs 10 %); the run continues", "time",
        "timed", title="go back in time by 5 %", also="rewind seek earlier"),
    Key("right", "\u2192", _player("seek(1)"), "", "forward by the same step", "time", "timed",
        title="go forward in time by 5 %", also="seek later"),
    Key("left_square_bracket", "[", _player("speed(-1)"), "", "half the speed", "time", "timed",
        title="play at half the speed", also="slower"),
    Key("right_square_bracket", "]", _player("speed(1)"), "", "twice the speed", "time", "timed",
        title="play at twice the speed", also="faster"),
    Key("b", "b", BACK_TO_NOW, "now", "back to now; in a replay to its end", "time", "timed",
        title="back to now; in a replay to its end", also="end live"),
)

_EVENTS: tuple[Key, ...] = (
    Key("n", "n", "event(1)", "", "next event: moves the player, or the cursor in a live view", "time",
        title="go to the next event", also="jump"),
    Key("N,shift+n", "N", "event(-1)", "", "previous event", "time",
        title="go to the previous event", also="before jump"),
)

_CHART: tuple[Key, ...] = (
    Key("v", "v", _loss("next_view(1)"), "",
        "next view: band, a line per core, a small chart per core, heat map of core and step", "chart",
        title="loss chart: next view", also="band overlay lines multiples heat map"),
    Key("V,shift+v", "V", _loss("next_view(-1)"), "", "previous view", "chart",
        title="loss chart: previous view", also="before"),
    Key("m", "m", _loss("page(1)"), "metrics",
        "next page: the loss, then every metric in training and validation", "chart",
        title="charts of all metrics: next page", also="accuracy validation valid curve lr learning rate auc score"),
    Key("M,shift+m", "M", _loss("page(-1)"), "", "previous page of metrics", "chart",
        title="charts of all metrics: previous page", also="before accuracy validation"),
    Key("slash", "/", _loss("search"), "", "metrics whose names have all words you type, each a regex", "chart",
        title="charts of all metrics: choose them by their names", also="names"),
    Key("asterisk", "*", _loss("pin"), "", "pin the selected metric to the first page, or not any more", "chart",
        title="charts of all metrics: pin the selected one", also="star favourite first"),
    Key("Z,shift+z", "Z", _loss("fold"), "", "fold the group of the selected metric: only its line is shown", "chart",
        title="charts of all metrics: fold the group of the selected one", also="collapse hide prefix"),
    Key("E,shift+e", "E", _loss("fold_all"), "", "fold all groups of metrics, or show all", "chart",
        title="charts of all metrics: fold all groups", also="collapse hide prefix"),
    Key("plus,equals_sign", "+", _loss("smooth(1)"), "", "more smoothing (raw curve stays visible)", "chart",
        title="loss chart: more smoothing", also="smoothing average more"),
    Key("minus", "-", _loss("smooth(-1)"), "", "less smoothing", "chart",
        title="loss chart: less smoothing", also="smoothing average"),
    Key("l", "l", _loss("toggle_log"), "", "y axis linear or logarithmic; heat map: deviation or loss",
        "chart", title="loss chart: y axis linear or logarithmic", also="log scale"),
    Key("L,shift+l", "L", _loss("next_range"), "",
        "y range of the chart: without outliers, all values, or two limits you type",
        "chart", title="loss chart, or selected metric: next y range, without outliers, full or manual",
        also="y axis limits robust outliers spikes scale"),
    Key("x", "x", _loss("next_x"), "", "x axis: step, epoch, time, examples", "chart",
        title="loss chart: next x axis", also="step epoch time examples"),
    Key("i", "i", _loss("zoom(1)"), "", "zoom in at the cursor, else at the newest step; also the wheel", "chart",
        title="loss chart: zoom in", also="closer wheel"),
    Key("I,shift+i", "I", _loss("zoom(0)"), "", "zoom out", "chart",
        title="loss chart: zoom out", also="farther wheel"),
    Key("a", "a", _loss("show_all"), "", "show the whole run", "chart",
        title="loss chart: show the whole run", also="zoom reset whole fit"),
    Key("less_than_sign", "<", _loss("pan(-1)"), "", "earlier steps, when zoomed in", "chart",
        title="loss chart: earlier steps, when zoomed in", also="pan left"),
    Key("greater_than_sign", ">", _loss("pan(1)"), "", "later steps", "chart",
        title="loss chart: later steps, when zoomed in", also="pan right"),
    Key("comma", ",", _loss("cursor(-1)"), "", "cursor to the left, shows the values; also a click; esc removes it",
        "chart", title="loss chart: cursor to the left", also="read values"),
    Key("full_stop", ".", _loss("cursor(1)"), "", "cursor to the right", "chart",
        title="loss chart: cursor to the right", also="read values"),
)

COMMON: tuple[Key, ...] = (
    Key("y", "y", "app.copy_panel", "", "copy the selected panel as text to the clipboard", "view", also="yank"),
    Key("e", "e", "app.export_panel", "", "write the selected panel to a file: text, CSV or SVG", "view",
        also="save picture screenshot figures"),
    Key("t", "t", "app.next_theme", "", "next theme: dark, light, colour-blind safe, mono", "view",
        title="next theme", also="colour color"),
    Key("u", "u", "app.undo_view", "", "undo the last change of the view or of a run's labels", "view",
        also="back revert"),
    Key("ctrl+p", "ctrl+p", "app.command_palette", "", "find any action by its name", "view"),
)
"""Keys of every screen, handled by the application."""

LOG: tuple[Key, ...] = (
    Key("slash", "/", "search", "", "filter lines by regex while typing; enter accepts it", "log",
        title="log: search for a regular expression", also="find filter grep"),
    Key("escape", "esc", "drop_search", "", "end the search; keeps the selected line", "log",
        title="log: end the search", also="clear"),
    Key("n", "n", "match(1)", "", "next match of the search, with the lines around it", "log",
        title="log: go to the next match", also="search find"),
    Key("N,shift+n", "N", "match(-1)", "", "previous match", "log",
        title="log: go to the previous match", also="search find before"),
    Key("f", "f", "next_lane", "", "lines of the next process or core only, then of all", "log",
        title="log: lines of the next process or core alone", also="filter rank lane"),
    Key("v", "v", "next_level", "", "all lines, warnings and errors, errors alone", "log",
        title="log: next level, all lines, warnings and errors, errors alone", also="filter severity"),
    Key("w", "w", "toggle_wrap", "", "wrap long lines, or cut them", "log",
        title="log: wrap long lines, or cut them", also="fold"),
    Key("a", "a", "older", "", "load earlier lines", "log",
        title="log: load earlier lines", also="before all earlier"),
)
"""Active while the log is selected."""

HOSTS: tuple[Key, ...] = (
    Key("left", "\u2190", "cursor(-1)", "", "previous host, once one is chosen", "hosts",
        title="hosts: go to the previous one", also="left"),
    Key("right", "\u2192", "cursor(1)", "", "next host, once one is chosen", "hosts",
        title="hosts: go to the next one", also="right"),
    Key("escape", "esc", "drop_host", "", "choose no host", "hosts",
        title="hosts: choose none", also="clear unselect"),
)
"""Active while the hosts panel is selected; only once a host is chosen, which the keys up and down do."""

MONITOR: tuple[Key, ...] = (
    Key("q", "q", "leave", "detach", "leave this screen; the run goes on", "run", also="quit exit close back"),
    Key("c", "c", "checkpoint", "checkpoint", "save a checkpoint now", "run", "live", also="save"),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "run", "live",
        also="end kill abort cancel"),
    *_PLAYER,
    *_EVENTS,
    Key("home", "home", "home", "",
        "beginning of a replay or a finished run; else of the panel", "move",
        title="go to the beginning", also="start top first"),
    Key("end", "end", "end", "", "end of a replay, back to now; else end of the panel", "move",
        title="go to the end", also="bottom last now"),
    *(
        Key(str(number), str(number), _body(f"select({number})"), "", "select this panel; again: full screen", "panels")
        for number in (*range(1, 10), 0)
    ),
    Key("W,shift+w", "W", _body("select('W')"), "", "diagnosis: why the run is slow; again: full screen", "panels",
        title="diagnosis: why the run is slow", also="verdicts recompile sync fallback bottleneck performance"),
    Key("h", "h", SELECT_HOSTS, "hosts", "hosts of a run with several; again: full screen", "panels",
        title="hosts of a run with several", also="machines pod map straggler slow silent missing"),
    Key("F,shift+f", "F", NEXT_VALUE, "value", "map of hosts: loss, steps behind, time, memory, phase", "hosts",
        title="hosts: next value of the map", also="figure lag memory phase time"),
    Key("tab", "tab", _body("cycle(1)"), "", "select the next panel", "panels"),
    Key("shift+tab", "shift+tab", _body("cycle(-1)"), "", "select the previous panel", "panels"),
    Key("enter", "enter", _body("open"), "full",
        "full screen and back; in events and hosts: opens the chosen one", "panels",
        title="full screen, or open the chosen event or host", also="full screen maximise zoom"),
    Key("z", "z", _body("maximise"), "", "toggle full screen", "panels",
        title="toggle full screen", also="selected panel maximise zoom"),
    Key("P,shift+p", "P", _body("layouts"), "",
        "panels and layouts: hide or show panels; save, choose and delete layouts", "panels",
        title="panels and layouts: hide, show, save, choose", also="hidden arrange arrangement resize"),
    Key("H,shift+h", "H", _body("hide"), "", "hide the selected panel; its number shows it again", "panels",
        title="hide the selected panel"),
    Key("shift+right", "shift+\u2192", _body("widen(1)"), "",
        "selected panel wider; or drag a border with the mouse, double click resets it", "panels",
        title="make the selected panel wider", also="resize grow size layout"),
    Key("shift+left", "shift+\u2190", _body("widen(-1)"), "", "selected panel narrower", "panels",
        title="make the selected panel narrower", also="resize shrink size layout"),
    Key("shift+down", "shift+\u2193", _body("heighten(1)"), "", "selected panel taller", "panels",
        title="make the selected panel taller", also="resize grow size layout"),
    Key("shift+up", "shift+\u2191", _body("heighten(-1)"), "", "selected panel lower", "panels",
        title="make the selected panel lower", also="resize shrink size layout"),
    Key("backspace", "backspace", _body("reset_sizes"), "", "default sizes of all panels", "panels",
        title="default sizes of all panels", also="reset resize"),
    Key("escape", "esc", "restore", "",
        "remove the cursor; then show all metrics, leave the full screen, hide the alarms", "panels",
        title="leave the full screen, or hide the alarms; first removes the cursor", also="restore acknowledge"),
    *_CHART,
    Key("f", "f", on_widget("events", "next_kind"), "", "events of the next kind only, then of all", "events",
        title="events: the next kind alone, after the last one all", also="filter"),
    Key("p", "p", "pictures", "pictures",
        "pictures of training examples and predictions, if the task draws any", "panels",
        also="images predictions"),
    Key("X,shift+x", "X", "stacks", "", "Python stacks of all processes; nothing is stopped",
        "run", also="traceback hang xray"),
    Key("T,shift+t", "T", "trace", "", "profile the next 20 steps, for XProf and TensorBoard; training continues",
        "run", "live", title="profile the next 20 steps", also="xprof tensorboard xla trace slow"),
    Key("d", "d", "skipped", "", "examples left out; the header shows how many", "panels",
        also="bad examples"),
    Key("r", "r", "details", "",
        "run details: command, host, versions, git commit, configuration", "panels",
        title="show the run details", also="config configuration command git commit versions host hyperparameters"),
    Key("down,j", "\u2193 j", _body("scroll(1)"), "",
        "scroll the panel down; heat map: next row; metrics: next chart", "move",
        title="scroll the selected panel down"),
    Key("up,k", "\u2191 k", _body("scroll(-1)"), "",
        "scroll it up; heat map: previous row; metrics: previous chart", "move",
        title="scroll the selected panel up"),
    Key("pagedown", "page down", _body("page(1)"), "", "scroll it down by a page", "move",
        title="scroll the selected panel down by a page"),
    Key("pageup", "page up", _body("page(-1)"), "", "scroll it up by a page", "move",
        title="scroll the selected panel up by a page"),
    Key("G,shift+g", "G", _body("follow"), "", "follow the newest rows again", "move",
        title="follow the newest again in the selected panel", also="tail"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "run"),
    *COMMON,
)

PICTURES: tuple[Key, ...] = (
    Key("p,escape,q", "p esc q", "close", "back", "back to the run", "pictures"),
    *_PLAYER,
    Key("n", "n", "epoch(1)", "epochs", "pictures of the next epoch; the newest is followed", "pictures",
        title="show the pictures of the next epoch"),
    Key("N,shift+n", "N", "epoch(-1)", "", "pictures of the epoch before", "pictures",
        title="show the pictures of the epoch before"),
    Key("down,j", "\u2193 j", "scroll(1)", "scroll", "scroll down", "pictures", title="scroll down"),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll up", "pictures", title="scroll up"),
    Key("pagedown", "page down", "page(1)", "", "down by a page", "pictures", title="scroll down by a page"),
    Key("pageup", "page up", "page(-1)", "", "up by a page", "pictures", title="scroll up by a page"),
    Key("home,g", "home g", "scroll(-1000000)", "", "to the first example", "pictures",
        title="go to the first example"),
    Key("end,G,shift+g", "end G", "scroll(1000000)", "", "to the last example", "pictures",
        title="go to the last example"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "pictures"),
    *COMMON,
)

RUNS: tuple[Key, ...] = (
    Key("q", "q", "leave", "quit", "quit; running jobs continue", "run",
        title="quit; running jobs continue", also="exit close detach"),
    Key("n", "n", "new", "new run", "configure and start a run", "run",
        title="start a run", also="launch train"),
    Key("enter", "enter", "open", "open", "open the run, live or at its end; read and follow a log", "runs",
        also="watch enter"),
    Key("slash", "/", "filter", "filter", "filter: words, -words, lr>=0.001, state=done, tag:x; all must match", "runs",
        title="filter the runs: words, -words, lr>=0.001, state=done", also="find search"),
    Key("escape", "esc", "back", "", "show all runs again", "runs", also="clear"),
    Key("o", "o", "next_order", "sort", "sort by the next column", "runs",
        title="sort the runs by the next column", also="order"),
    Key("O,shift+o", "O", "reverse", "", "reverse the sort order", "runs",
        title="reverse the sort order of the runs", also="sort descending ascending"),
    Key("space", "space", "mark", "", "mark or unmark the run", "runs", also="select choose"),
    Key("C,shift+c", "C", "compare", "compare", "compare 2-8 marked runs; the one under the cursor is the base",
        "runs"),
    Key("s", "s", "stop", "stop", "ask the run to stop; a dialog asks how", "runs", also="end kill abort cancel"),
    Key("c", "c", "checkpoint", "checkpoint", "save a checkpoint now", "runs", also="save"),
    Key("asterisk", "*", "edit('pin')", "pin", "pin or unpin the run: pinned runs are listed first", "runs",
        title="pin or unpin the run", also="star favourite first"),
    Key("number_sign", "#", "edit('labels')", "tags", "edit the tags and the note of the run", "runs",
        title="edit the tags and the note of the run", also="label comment name"),
    Key("v", "v", "columns", "columns", "choose columns by key, such as optim.lr best.accuracy -curve", "runs",
        title="choose the columns", also="view metric config key"),
    Key("A,shift+a", "A", "edit('archive')", "", "archive the marked runs, else this one; again: unarchive", "runs",
        title="archive the marked runs, else this one", also="hide unarchive"),
    Key("a", "a", "show_archived", "", "show or hide archived runs", "runs", also="all hidden"),
    Key("D,shift+d,delete", "D", "edit('delete')", "", "delete the marked runs, else this one; asks first", "runs",
        title="delete the marked runs, else this one", also="remove rm"),
    Key("ctrl+r,f5", "ctrl+r", "reload", "", "read every run again, and search for logs", "runs", also="refresh"),
    Key("down,j", "\u2193 j", "move(1)", "", "next run", "move", title="go to the next run"),
    Key("up,k", "\u2191 k", "move(-1)", "", "previous run", "move", title="go to the previous run"),
    Key("pagedown", "page down", "page(1)", "", "page down", "move",
        title="go down by a page of runs"),
    Key("pageup", "page up", "page(-1)", "", "page up", "move", title="go up by a page of runs"),
    Key("home,g", "home g", "move(-1000000)", "", "first run", "move", title="go to the first run"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last run", "move", title="go to the last run"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "run"),
    *COMMON,
)

COMPARE: tuple[Key, ...] = (
    Key("q", "q", "leave", "back", "leave the comparison; running jobs continue", "runs",
        also="quit exit close"),
    Key("n", "n", "choose(1)", "next", "select the next run", "runs"),
    Key("N,shift+n", "N", "choose(-1)", "", "select the previous run", "runs"),
    Key("B,shift+b", "B", "rebase", "base", "make the selected run the base", "runs"),
    Key("space", "space", "hide", "hide", "hide or show the curve of the selected run", "runs", also="curve"),
    Key("a", "a", "show_all", "", "show every curve", "runs"),
    Key("enter", "enter", "open", "open", "in the run list: open the selected run; else full screen and back", "runs",
        title="open the selected run, or toggle full screen"),
    Key("m", "m", "next_meter(1)", "metric", "chart the next metric by epoch; after the last one the loss", "chart"),
    Key("M,shift+m", "M", "next_meter(-1)", "", "chart the previous metric", "chart",
        title="chart the previous metric"),
    Key("x", "x", "next_x", "", "x axis: step, epoch, time from the start, examples", "chart",
        title="curves: next x axis", also="step epoch time examples"),
    Key("l", "l", "toggle_log", "", "y axis linear or logarithmic", "chart",
        title="curves: y axis linear or logarithmic", also="log scale"),
    Key("L,shift+l", "L", "next_range", "", "y range: without outliers, all values, or two limits you type", "chart",
        title="curves: next y range, without outliers, full or manual", also="y axis limits robust outliers scale"),
    Key("plus,equals_sign", "+", "smooth(1)", "", "more smoothing (the raw curve of the selected run stays visible)",
        "chart", title="curves: more smoothing", also="smoothing average"),
    Key("minus", "-", "smooth(-1)", "", "less smoothing", "chart",
        title="curves: less smoothing", also="smoothing average"),
    Key("left,comma", "\u2190 ,", "cursor(-1)", "", "move the value cursor left; or click", "chart",
        title="curves: cursor to the left", also="read values"),
    Key("right,full_stop", "\u2192 .", "cursor(1)", "", "cursor to the right", "chart",
        title="curves: cursor to the right", also="read values"),
    Key("less_than_sign", "<", "cursor(-10)", "", "cursor ten cells to the left", "chart",
        title="curves: cursor ten cells to the left", also="read values"),
    Key("greater_than_sign", ">", "cursor(10)", "", "cursor ten cells to the right", "chart",
        title="curves: cursor ten cells to the right", also="read values"),
    *(
        Key(str(number), str(number), _body(f"select({number})"), "", "select this panel; again: full screen", "panels")
        for number in range(1, 5)
    ),
    Key("tab", "tab", _body("cycle(1)"), "", "select the next panel", "panels"),
    Key("shift+tab", "shift+tab", _body("cycle(-1)"), "", "select the previous panel", "panels"),
    Key("z", "z", _body("maximise"), "", "toggle full screen", "panels",
        also="selected panel maximise"),
    Key("escape", "esc", "restore", "", "remove the cursor, then leave full screen, then leave", "panels",
        title="remove the cursor, leave full screen, or leave"),
    Key("down,j", "\u2193 j", "scroll(1)", "", "scroll the selected panel down; in the run list: next run", "move",
        title="scroll the selected panel down; in the run list: next run"),
    Key("up,k", "\u2191 k", "scroll(-1)", "", "scroll it up; in the run list: previous run", "move",
        title="scroll the selected panel up; in the run list: previous run"),
    Key("pagedown", "page down", _body("page(1)"), "", "scroll it down by a page", "move",
        title="scroll the selected panel down by a page"),
    Key("pageup", "page up", _body("page(-1)"), "", "scroll it up by a page", "move",
        title="scroll the selected panel up by a page"),
    Key("home,g", "home g", "scroll(-1000000)", "", "to its beginning", "move",
        title="go to the beginning of the selected panel"),
    Key("end,G,shift+g", "end G", "scroll(1000000)", "", "to its end", "move",
        title="go to the end of the selected panel"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "runs"),
    *COMMON,
)

CONFIGS: tuple[Key, ...] = (
    Key("enter", "enter", "take", "edit", "edit this configuration and start a run", "new run"),
    Key("R,shift+r", "R", "resume", "resume", "the same, resuming the last checkpoint of this run", "new run",
        title="resume the last checkpoint of this run"),
    Key("escape,q", "esc", "close", "back", "back to the run list", "new run"),
    Key("down,j", "\u2193 j", "move(1)", "", "next configuration", "move", title="go to the next configuration"),
    Key("up,k", "\u2191 k", "move(-1)", "", "previous configuration", "move", title="go to the previous configuration"),
    Key("pagedown", "page down", "page(1)", "", "page down", "move",
        title="go down by a page of configurations"),
    Key("pageup", "page up", "page(-1)", "", "page up", "move",
        title="go up by a page of configurations"),
    Key("home,g", "home g", "move(-1000000)", "", "first configuration", "move", title="go to the first configuration"),
    Key("end,G,shift+g", "end G", "move(1000000)", "", "last configuration", "move",
        title="go to the last configuration"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "new run"),
    *COMMON,
)

# No letters: typing a letter starts editing the field.
LAUNCH: tuple[Key, ...] = (
    Key("ctrl+s", "ctrl+s", "start", "start", "start the run in the background and open it", "new run",
        also="launch train"),
    Key("enter", "enter", "edit", "edit",
        "edit the value, or just type a new one; enter accepts it, esc restores the old one", "fields",
        title="type a value into the field", also="change"),
    Key("right,space", "\u2192", "turn(1)", "", "next choice of a field with few values", "fields",
        title="field: next choice"),
    Key("left", "\u2190", "turn(-1)", "", "previous choice", "fields", title="field: previous choice"),
    Key("backspace,delete", "backspace", "reset", "reset", "restore the original value", "fields",
        also="undo default"),
    Key("slash", "/", "find", "find", "search the keys and the documentation of the fields", "fields",
        also="search filter"),
    Key("ctrl+o", "ctrl+o", "write", "save as", "write the configuration to a new TOML file", "new run",
        also="toml file"),
    Key("escape", "esc", "close", "back", "end the search; then leave, asking first if there are changes",
        "new run", title="end the search, or leave", also="leave quit"),
    Key("down", "\u2193", "move(1)", "", "next field", "move", title="go to the next field"),
    Key("up", "\u2191", "move(-1)", "", "previous field", "move", title="go to the previous field"),
    Key("tab", "tab", "table(1)", "", "next table", "move", title="go to the next table"),
    Key("shift+tab", "shift+tab", "table(-1)", "", "previous table", "move", title="go to the previous table"),
    Key("pagedown", "page down", "page(1)", "", "page down", "move",
        title="go down by a page of fields"),
    Key("pageup", "page up", "page(-1)", "", "page up", "move", title="go up by a page of fields"),
    Key("home", "home", "move(-1000000)", "", "first field", "move", title="go to the first field"),
    Key("end", "end", "move(1000000)", "", "last field", "move", title="go to the last field"),
    Key("ctrl+g", "ctrl+g", "next_problem", "", "next field that is invalid or changed", "move",
        title="go to the next field that is invalid or changed", also="error"),
    Key("question_mark", "?", HELP, "help", "show or leave this help", "new run"),
    # A letter on a field of text begins its new value.
    *(key if len(key.shown) > 1 else key._replace(help=f"{key.help}; on a field of text by ctrl+p") for key in COMMON),
)


TYPING: tuple[Key, ...] = (
    Key("enter", "enter", "", "accept", "accept the text", "fields"),
    Key("escape", "esc", "", "cancel", "restore the old text", "fields"),
)
"""Footer while the user types; every other key is part of the text."""

_UNFIT: dict[When, str] = {"live": "not possible in a recording", "timed": "this view has no history"}

# fmt: on


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """Textual bindings of the keys."""
    return [Binding(key.keys, key.action, key.footer or key.help, show=False) for key in keys]


def in_force(
    keys: Iterable[Key],
    *,
    replaying: bool,
    timed: bool | None = None,
    over: bool = False,
    read_only: bool = False,
) -> list[Key]:
    """The keys that work in the current view. `timed`: the view has a history, by default in a replay; `over`: the run
    has ended; `read_only`: the run takes no requests."""
    hidden = _REQUESTS if over or read_only else frozenset[str]()
    fit = [k for k in keys if k.action not in hidden and not why_unfit(k, replaying=replaying, timed=timed)]
    ends = replaying or over
    return [key._replace(footer="end") if ends and key.action == BACK_TO_NOW else key for key in fit]


_REQUESTS = frozenset({"checkpoint", "stop"})
"""Actions that send requests to the run; no other action changes it."""


def why_unfit(key: Key, *, replaying: bool, timed: bool | None = None) -> str:
    """Why a key does not work in the current view; empty if it does."""
    fits = {"always": True, "live": not replaying, "timed": replaying if timed is None else timed}
    return "" if fits[key.when] else _UNFIT[key.when]


def offered(in_force: Iterable[Key], *, in_past: bool, over: bool) -> list[Key]:
    """The active keys for the footer, without those that do nothing at this moment.

    `in_past`: the view shows a past moment, as in any replay; `over`: the followed run has ended.
    """
    hidden = {BACK_TO_NOW} if not in_past else set[str]()
    hidden |= {PLAY_OR_PAUSE} if not (in_past or over) else set()
    return [key for key in in_force if key.action not in hidden]
