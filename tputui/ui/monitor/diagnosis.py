"""The diagnosis panel: what slows the run down or keeps it from learning, worst first; in full screen with evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from textual import events

from tputui import formatting as fmt
from tputui.diagnosis.diagnosed_run import STEPS_MIN, DiagnosedRun
from tputui.diagnosis.verdict import Verdict, found
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot
from tputui.text import verdict_lines
from tputui.ui.render.lines import Line, Span, Tone, clean, crop, paragraph, width_of, wrap
from tputui.ui.widgets.panel import FRAME, Drawing, RunPanel

NOTE, NOTE_FULL = "enter: evidence and fix", "j k: next"
_TITLE = max(len(title) for title in verdict_lines.TITLES.values())
_PLACE_SHARE = 3
"""The lines of code take at most this part of the width of the list."""
_INDENT = 3
_TEXT = 40
"""Cells that a reason beside the titles of its rules needs."""
_LABEL = 10
"""Cells of the labels in full screen."""


class DiagnosisPart(NamedTuple):
    """The content of the panel."""

    verdicts: tuple[Verdict, ...]
    steps: int
    """Steps of the run, up to those that the rules need."""
    has_ended: bool
    run: str
    """Name of the run, for commands."""
    goodput: tuple[str, ...]
    """Where the wall time of the run went, a line each."""


class DiagnosisPanel(RunPanel[DiagnosisPart]):
    """The list of verdicts, one of them chosen."""

    key = "W"
    name_shown = "diagnosis"
    what = (
        "what slows the run down, worst first: the line of code, the seconds lost and their share of the wall time; "
        "evidence, fix and predicted gain in full screen"
    )

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._chosen: object = None
        """Identifies the chosen verdict also if its figures change."""
        self._rows: list[int | None] = []
        """The verdict of each row that is drawn."""

    @staticmethod
    def pick(snapshot: Snapshot) -> DiagnosisPart:
        # Imported here so that the monitor opens faster: its reading thread finds the verdicts.
        from tputui.diagnosis.diagnose import diagnose

        return part_of(snapshot, diagnose(snapshot))

    def draw(self, part: DiagnosisPart, width: int, height: int) -> Drawing:
        """A row for each verdict; in full screen a block."""
        self._rows = []
        rows: list[Line] = []
        is_full = self.has_class("-maximised")
        answered = [candidate for candidate in part.verdicts if candidate.status in ("found", "hint")]
        at = self._index(part.verdicts)
        places = max((len(_place(candidate)) for candidate in answered), default=0)
        costs = max((len(_cost(candidate)) for candidate in answered), default=0)
        for index, verdict in enumerate(answered):
            if is_full:
                lines = list(_block(verdict, part.run, width, chosen=index == at))
                if index + 1 < len(part.verdicts):
                    lines.append([])
            else:
                lines = [_row(verdict, min(places, width // _PLACE_SHARE), costs, width, chosen=index == at)]
            rows += lines
            self._rows += [index] * len(lines)
        others = _rest(part, width, None if is_full else height - len(rows) - self._num_head_rows())
        rows += others
        self._rows += [None] * len(others)
        if found(part.verdicts):
            return Drawing(rows, note=NOTE_FULL if is_full else NOTE)
        head = tuple(paragraph(nothing_found(part), width, 2, "dim" if part.steps < STEPS_MIN else "plain"))
        return Drawing(rows, head=head, note=(NOTE_FULL if is_full else NOTE) if answered else "")

    def scroll_rows(self, rows: int) -> None:
        """Choose the verdict so many rows away; scroll if none can be chosen."""
        part = self._part
        num_answered = sum(verdict.status in ("found", "hint") for verdict in part.verdicts) if part is not None else 0
        if part is None or not num_answered or abs(rows) > len(self._rows):
            # To the start or the end, where the rules are; the chosen verdict stays.
            super().scroll_rows(rows)
            return
        before = self._index(part.verdicts)
        wanted = (num_answered - 1 if rows < 0 else 0) if before is None else before + rows
        if before is not None and rows > 0 and before == num_answered - 1:
            # Behind the last one are only the rules without an answer.
            super().scroll_rows(rows)
            return
        self._choose(min(max(wanted, 0), num_answered - 1))

    def page(self, pages: int) -> None:
        """Scroll by nearly the height of the panel; the chosen verdict stays."""
        super().scroll_rows(pages * max(self.size.height - FRAME - 2, 1))

    def follow(self) -> None:
        """Choose no verdict, and return to the worst one."""
        self._chosen = None
        super().follow()

    def on_click(self, event: events.Click) -> None:
        """Choose the verdict that is clicked; a double click toggles full screen."""
        row = event.y - FRAME // 2 + self._first_row() - self._num_head_rows()
        if self.is_inside(event.x, event.y) and 0 <= row < len(self._rows) and self._rows[row] is not None:
            self._choose(self._rows[row] or 0, scroll=False)
        super().on_click(event)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll; the chosen verdict stays."""
        event.stop()
        super().scroll_rows(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll; the chosen verdict stays."""
        event.stop()
        super().scroll_rows(-3)

    def _num_head_rows(self) -> int:
        part = self._part
        if part is None or found(part.verdicts):
            return 0
        return len(paragraph(nothing_found(part), self.size.width - FRAME, 2))

    def _index(self, verdicts: Sequence[Verdict]) -> int | None:
        return next((index for index, key in enumerate(_keys(verdicts)) if key == self._chosen), None)

    def _choose(self, index: int, *, scroll: bool = True) -> None:
        """Choose a verdict, and scroll so that its first row is visible, in full screen at the top."""
        verdicts = self._part.verdicts if self._part is not None else ()
        self._chosen = list(_keys(verdicts))[index]
        if scroll and index in self._rows:
            row, room = self._rows.index(index), max(self.size.height - FRAME - self._num_head_rows(), 1)
            first = self._first_row()
            if self.has_class("-maximised") or not first <= row < first + room:
                self._top = min(row, self._hidden_rows) or None
        self.redraw()


def part_of(snapshot: Snapshot, verdicts: tuple[Verdict, ...]) -> DiagnosisPart:
    """The content of the panel, from verdicts on the snapshot."""
    # Imported here so that the monitor opens faster.
    from tputui.diagnosis.goodput import goodput_of
    from tputui.text import verdict_lines

    goodput = [*verdict_lines.goodput_blocks(goodput_of(snapshot), None)]
    if snapshot.details.resumed_from is not None:
        goodput.append(f"{'':<{verdict_lines.INDENT}}of this run alone; with those that it continues: tputui doctor")
    steps = min(DiagnosedRun.of(snapshot).steps, STEPS_MIN)
    return DiagnosisPart(verdicts, steps, snapshot.condition in ENDED, snapshot.run, tuple(goodput))


def nothing_found(part: DiagnosisPart) -> str:
    """The head of the panel if nothing was found, as of `tputui doctor`, with the reason if the run is too short."""
    if part.steps >= STEPS_MIN:
        return "no findings"
    if part.has_ended:
        return f"no findings: the run ended after {part.steps} of the {STEPS_MIN} steps that a diagnosis needs"
    return f"no findings yet: {part.steps} of {STEPS_MIN} steps"


def _rest(part: DiagnosisPart, width: int, room: int | None) -> list[Line]:
    """What `tputui doctor` prints besides the findings: goodput, rules that found nothing, those without an answer.

    Shortened if it needs more than `room` lines.
    """
    goodput: list[Line] = [[Span(crop(f"   {clean(line)}", width), "dim")] for line in part.goodput]
    rows = [*goodput, *_rules(part.verdicts, width)]
    if room is None or len(rows) <= room:
        return rows
    checked = verdict_lines.checked(part.verdicts)
    listed = [("nothing found", checked)] if checked else []
    return [*goodput[:1], *(row for titles, text in [*listed, *verdict_lines.unanswered(part.verdicts)] for row in
            _listed(titles, clean(text), width, is_cut=True))]  # fmt: skip


def _rules(verdicts: Sequence[Verdict], width: int) -> Iterator[Line]:
    """The rules that found nothing with what they look for, then those that were not checked with the reason."""
    answered = {rule for verdict in verdicts for rule in verdict.rules}
    clear = [(rule, "") for rule in verdict_lines.TITLES if rule not in answered]
    unanswered = [(v.rule, f": {v.status}, {v.text}") for v in verdicts if v.status in verdict_lines.UNANSWERED]
    for head, rules in (("checked, nothing found", clear), ("not checked", unanswered)):
        if rules:
            yield []
            yield [Span(f"   {head}", "title"), Span(f"  {fmt.counted(len(rules), 'rule')}", "dim")]
        for rule, why in rules:
            for line in _listed(verdict_lines.TITLES[rule], verdict_lines.LOOKS_FOR[rule] + clean(why), width):
                name, text = line[0].text[: _TITLE + 5], line[0].text[_TITLE + 5 :]
                yield [Span(name, "label"), Span(text, "dim")]
    if ignored := verdict_lines.ignored(verdicts):
        yield []
        yield from ([Span(f"   {piece}", "dim")] for piece in wrap(clean(ignored), max(width - 4, 8)))


def _keys(verdicts: Sequence[Verdict]) -> Iterator[object]:
    """What identifies each verdict: its rule and line, and its number among several of these."""
    counts: dict[object, int] = {}
    for verdict in verdicts:
        same = (verdict.rule, verdict.file, verdict.line, verdict.function)
        counts[same] = counts.get(same, 0) + 1
        yield same, counts[same]


def _place(verdict: Verdict) -> str:
    return clean(verdict.where) if verdict.where else "line unknown" if verdict.line_reason else ""


def _cost(verdict: Verdict) -> str:
    """`8.3 s   12 %`, or `7 % of a step` if it is not known since when."""
    if verdict.status == "hint":
        return "hint"
    if verdict.is_learning:
        return verdict_lines.since(verdict)
    if verdict.lost_s is None:
        of_step = f"{verdict_lines.percent(1 - 1 / verdict.speedup)} of a step" if verdict.speedup else "cost unknown"
        return "fatal" if verdict.fatal else of_step
    share = f"{verdict_lines.percent(verdict.share):>7}" if verdict.share is not None else ""
    return f"{fmt.duration(verdict.lost_s)}{share}"


def _row(verdict: Verdict, places: int, costs: int, width: int, *, chosen: bool) -> Line:
    """Title, line of code, cost with its share, and what happens."""
    mark: Tone = "bad" if verdict.fatal else "warn"
    tones: tuple[Tone, ...] = (mark, "strong", "strong", "plain")
    if verdict.status == "hint":
        tones = ("dim",) * 4
    if chosen:
        tones = ("chosen",) * 4
    sign = "\u2716" if verdict.fatal else "\u25b2" if verdict.status == "found" else " "
    line: Line = [Span(f" {sign} {verdict_lines.TITLES[verdict.rule]:<{_TITLE}} ", tones[0])]
    if places:
        line.append(Span(f" {crop(_place(verdict), places):<{places}} ", tones[1]))
    line.append(Span(f" {_cost(verdict):>{costs}}  ", tones[2]))
    room = width - width_of(line)
    return [*line, Span(crop(clean(verdict.text), room), tones[3])] if room > 1 else line


def _block(verdict: Verdict, run: str, width: int, *, chosen: bool) -> Iterator[Line]:
    """The verdict with its evidence and fix, in several lines."""
    is_hint = verdict.status == "hint"
    tone: Tone = "chosen" if chosen else "bad" if verdict.fatal else "dim" if is_hint else "warn"
    sign = "\u2716" if verdict.fatal else " " if is_hint else "\u25b2"
    place = _place(verdict)
    if verdict.line_reason and not verdict.where:
        place = f"{place}: {clean(verdict.line_reason)}"
    elif verdict.where and verdict.function:
        place = f"{place} in {clean(verdict.function)}"
    cost = "hint" if is_hint else verdict_lines.cost(verdict) or _cost(verdict)
    head = "  ".join(filter(None, (verdict_lines.TITLES[verdict.rule], place, cost)))
    for number, piece in enumerate(wrap(head, max(width - _INDENT - 1, 8))):
        yield [Span(f" {sign if number == 0 else ' '} {piece}", tone)]
    parts: list[tuple[str, Sequence[str], Tone]] = [
        ("", [verdict.text], "plain"),
        ("evidence", verdict.evidence, "label"),
        ("overlaps", [f"with {verdict.overlap}"] if verdict.overlap else [], "label"),
        ("fix", [verdict.fix] if verdict.fix else [], "strong"),
        ("keep", [verdict.keep] if verdict.keep else [], "strong"),
        ("gain", [verdict_lines.gain(verdict)] if verdict_lines.gain(verdict) else [], "good"),
        ("measure", [command] if (command := verdict_lines.try_command(verdict, run)) else [], "strong"),
    ]
    for label, sentences, own in parts:
        for sentence in sentences:
            yield from _labelled(label, clean(sentence), width, "dim" if is_hint else own)
            label = ""


def _labelled(label: str, text: str, width: int, tone: Tone) -> Iterator[Line]:
    indent = _INDENT + (_LABEL if width >= 40 else 0)
    if indent == _INDENT:
        text, label = f"{label}: {text}" if label else text, ""
    for piece in wrap(text, max(width - indent - 1, 8)):
        yield [Span(f"{'':<{_INDENT}}{label:<{indent - _INDENT}}", "label"), Span(piece, tone)]
        label = ""


def _listed(titles: str, text: str, width: int, *, is_cut: bool = False) -> list[Line]:
    head = f"   {titles:<{_TITLE}}  "
    room = width - len(head) - 1
    if room < min(_TEXT, width // 2):
        text, head = f"{titles}: {text}", "   "
        room = width - len(head) - 1
    pieces = [crop(text, max(room, 8))] if is_cut else wrap(text, max(room, 8))
    indent = " " * len(head)
    return [[Span(f"{head if number == 0 else indent}{piece}", "dim")] for number, piece in enumerate(pieces)]
