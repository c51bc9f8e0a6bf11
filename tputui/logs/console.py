"""Reads metrics from console output: dictionaries, progress bars, and names with numbers beside a step or an epoch.

Console output is prose as much as data, so a line counts only if it has one of these forms. Whoever needs other forms
gives a pattern, which replaces all of them.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tputui.logs import console_text as text_of
from tputui.logs.console_text import END, LINE_CHARS_MAX, NUMBER, Named, number_of
from tputui.logs.number_forms import PARAMETER, unwrapped, without_comma
from tputui.logs.rows import EPOCH_NAMES, STEP_NAMES, decimal, form, step_number
from tputui.logs.tags import meaning_of
from tputui.logs.values import LoggedValue

SEGMENTS_MAX = 256
"""Updates of a progress bar that are parsed of one line; of more, the last ones."""
CONTEXT_GROUPS = ("step", "epoch", "core")
"""Named groups of a pattern that are not metrics."""
_PROSE_LETTERS_MAX = 40
"""Letters besides metrics on a line without step or epoch, at most."""
_PROSE_LETTERS_WITH_STEP_MAX = 100
"""The same on a line with one, which often begins with a time, a level and a module."""
_HEADER_LETTERS_MAX = 16
"""The same on a line that has a step or an epoch and nothing else, such as `Epoch 3/10`."""
_COUNTERS_MAX = 256
_RANKS_MAX = 4_096
"""Ranks with a stream of their own; the lines of further ones count as one stream."""

_TQDM = re.compile(
    r"\s{0,9}(?:([^|%]{1,120}?): {0,3})?\s{0,3}\d{1,3}%\|[^|]{0,400}\|\s{0,9}(\d{1,18})/(\d{1,18})"
    r" \[(?:\d{1,4}:){1,3}\d{2}<[^,\]]{1,20}, {0,9}[^,\]]{0,40}(?:, ([^\]]{1,2000}))?\]"
)
_TQDM_PAIR = re.compile(
    rf"(?:^|, )\s{{0,2}}([A-Za-z_][^=:,]{{0,60}})(?:=|: ?)({NUMBER})%?(?=,|\s{{0,9}}$)", re.IGNORECASE
)
_BAR_EPOCH = re.compile(r"epoch\W{0,3}(\d{1,9})", re.IGNORECASE)
_BAR_SPLIT = re.compile(r"\s{0,4}(train|val|eval|test)(?:ing|id|idation|idating|uation|uating)?\b", re.IGNORECASE)
_SANITY = "sanity"
_KERAS = re.compile(
    r"\s{0,9}(\d{1,18})/(\d{1,18}|Unknown)\s{1,3}(?:\[?[\u2501=>.]{1,200}\]? ?)?"
    r"(?=[^|]{0,60}?(?:/step|/epoch|ETA:|\ds - ))"
)
_KERAS_PAIR = re.compile(rf" - ([A-Za-z_][\w/ .-]{{0,60}}): ({NUMBER}){END}", re.IGNORECASE)
_DICT_PAIR = re.compile(rf"(['\"])([^'\"\\{{}}]{{1,100}})\1\s?: ?(['\"]?)({NUMBER})\3(?=\s?[,}}])", re.IGNORECASE)

_RICH = re.compile(
    r"\s{0,4}(?:Epoch (\d{1,9})/-?\d{1,9}|(\w{1,20}(?: \w{1,20})?))\s{1,9}[\u2501\u2578\u257a -]{1,400} "
    r"(\d{1,18})/(\d{1,18}|--)\s{1,9}[\d:-]{1,20} \u2022\s{1,20}(?:[\d:-]{1,20}\s{1,9})?[\d.]{1,20}it/s(.*)"
)
"""Lightning's bar by Rich, which counts epochs from 0; its metrics continue on indented lines."""
_RICH_MORE = re.compile(r"\s{20,400}(?:[\d:-]{1,20}\s{1,99})?(?=[A-Za-z_])")
_RICH_PAIR = re.compile(rf"(?:^|\s)([A-Za-z_][\w./-]{{0,60}}): ({NUMBER})(?=\s|$)", re.IGNORECASE)


def check_pattern(text: str) -> str | None:
    """The reason why a text cannot be the pattern of `[script.console]`; None if it can."""
    try:
        groups = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    if not set(groups) - set(CONTEXT_GROUPS):
        return "has no named group for a metric, such as (?P<loss>[-+.e0-9]+)"
    return None


class _Counter(NamedTuple):
    """A count that begins again in every epoch."""

    newest: int
    before: int
    """Steps before the newest restart."""
    epoch: float | None


class ConsoleParser:
    """Parses the lines of one stream, in their order. Remembers step and epoch of the lines before, for each rank."""

    def __init__(self, pattern: str | None = None) -> None:
        """With a `pattern`, only its matches are read: groups `step`, `epoch` and `core`, every other one a metric.

        `__` in the name of a group is `/` in the tag. Raises `re.error` if the pattern is not valid.
        """
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._ranks: dict[str, _RankParser] = {}
        """By suffix of the tags."""
        self._step: int | None = None
        self._epoch: float | None = None
        self._begun = ""
        """A line that ends before the value of a parameter, which torch prints on the next line."""
        self._has_decimal_commas = False
        """Whether a line has shown that a comma is the decimal separator."""
        self.num_labels = 0
        """A bare number in front of a line, as of `srun --label`, is a rank if it is less than this."""
        self.num_ranks = 1
        """Ranks that are known to print."""

    @property
    def is_mixed(self) -> bool:
        """Whether several ranks print metrics without their rank, so that their lines cannot be assigned to ranks."""
        return self.num_ranks > 1 and "" in self._ranks and self._ranks[""].has_repeats

    def parse(self, line: str, t: float) -> list[LoggedValue]:
        """The values on a line that was printed at `t`, Unix time in seconds; `\\r` separates updates of a bar."""
        found: list[LoggedValue] = []
        segments = line.split("\r") if "\r" in line else [line]
        for segment in segments[-SEGMENTS_MAX:]:
            if 0 < len(segment) <= LINE_CHARS_MAX:
                found += self._parse_segment(text_of.plain(segment), t)
        return found

    def _parse_segment(self, text: str, t: float) -> list[LoggedValue]:
        if self._pattern is not None:
            return self._of_pattern(self._pattern, text, t)
        text, self._begun = self._begun + text, ""
        if text.endswith(PARAMETER) and len(text) <= LINE_CHARS_MAX:
            self._begun = f"{text} "
            return []
        text, suffix = text_of.without_rank(unwrapped(text), self.num_labels)
        if not text or text.isspace():
            return []
        text, is_shown = text_of.with_decimal_points(text, is_usual=self._has_decimal_commas)
        self._has_decimal_commas = self._has_decimal_commas or is_shown
        rank = self._ranks.get(suffix)
        if rank is None:
            suffix = suffix if len(self._ranks) < _RANKS_MAX else ""
            rank = self._ranks.setdefault(suffix, _RankParser(suffix))
        return rank.parse(text, t, is_mixed=self.num_ranks > 1 and not suffix)

    def _of_pattern(self, pattern: re.Pattern[str], text: str, t: float) -> list[LoggedValue]:
        match = pattern.search(text)
        if match is None:
            return []
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        step, epoch, core = (_number(groups.pop(name, "")) for name in CONTEXT_GROUPS)
        self._step = step_number(step) if step is not None else self._step
        self._epoch = epoch if epoch is not None else self._epoch
        suffix = f"/core{int(core)}" if core is not None and core.is_integer() else ""
        return [
            LoggedValue(name.replace("__", "/") + suffix, self._step, t, value, self._epoch)
            for name, found in groups.items()
            if (value := _number(found)) is not None
        ]


class _RankParser:
    """Parses the lines of one rank, or of all whose lines do not name it."""

    def __init__(self, suffix: str) -> None:
        """`suffix` is that of the tags."""
        self._suffix = suffix
        self._is_mixed = False
        self.has_repeats = False
        """Whether a position was printed twice, as by several ranks."""
        self._step: int | None = None
        self._epoch: float | None = None
        self._counters: dict[str, _Counter] = {}
        """By kind of line."""
        self._bar_values: dict[str, tuple[int | None, float]] = {}
        """Newest step and value by tag of progress bars, which repeat their values."""
        self._main_bar: int | None = None
        """Total of the bar of Hugging Face's `Trainer`, which counts its steps."""
        self._waiting: list[LoggedValue] = []
        """Values of a dictionary that was printed above this bar, whose next update has their step."""
        self._rich: tuple[int, float] | None = None
        """Step and epoch of a bar by Rich whose metrics may continue on the next line."""

    def parse(self, text: str, t: float, *, is_mixed: bool) -> list[LoggedValue]:
        """The values of one line or update of a bar. `is_mixed`: several ranks print without their rank."""
        suffix, self._is_mixed = self._suffix, is_mixed
        if "%|" in text and (bar := _TQDM.match(text)) is not None:
            return self._of_tqdm(bar, suffix, t)
        if (rich := _RICH.match(text)) is not None:
            return self._of_rich(rich, t)
        if self._rich is not None and (more := _RICH_MORE.match(text)) is not None:
            return self._of_rich_metrics(text[more.end() :], t, *self._rich)
        waiting, self._waiting = self._waiting, []
        if text.lstrip().startswith("{") and text.endswith("}"):
            return waiting + self._of_dict(text, suffix, t)
        keras = _KERAS.match(text)
        if keras is not None:
            return waiting + self._of_keras(keras, text, suffix, t)
        return waiting + self._of_line(text, suffix, t)

    def _of_tqdm(self, bar: re.Match[str], suffix: str, t: float) -> list[LoggedValue]:
        label, position, total, postfix = bar.group(1) or "", int(bar.group(2)), int(bar.group(3)), bar.group(4) or ""
        if not label and not postfix:
            return self._of_main_bar(position, total)
        pairs = [(name.strip(), number_of(value)) for name, value in _TQDM_PAIR.findall(postfix)]
        epoch = _BAR_EPOCH.search(label)
        if epoch is not None:
            self._epoch = float(epoch.group(1))
        pairs = [(name, value) for name, value in pairs if form(name) != "v_num" and not _is_context(name)]
        if not pairs or _SANITY in label.lower():
            return []
        split = _BAR_SPLIT.match(label)
        prefix = split.group(1).lower() if split is not None else ""
        step = self._counted(f"bar {re.sub(r'[0-9]+', '', label)}", position, total)
        self._step = step if prefix in ("", "train") else self._step
        return [
            LoggedValue(tag, step, t, value, self._epoch)
            for name, value in pairs
            if self._is_new_on_bar(tag := text_of.with_split(name, prefix) + suffix, step, value)
        ]

    def _of_rich(self, bar: re.Match[str], t: float) -> list[LoggedValue]:
        self._rich = None
        if bar.group(1) is None:
            return []  # Its metrics are printed with the next training step.
        self._epoch = float(bar.group(1))
        position, total = int(bar.group(3)), bar.group(4)
        step = int(self._epoch) * int(total) + position if total.isdecimal() else self._counted("rich", position, None)
        self._step = step
        self._rich = step, self._epoch
        return self._of_rich_metrics(bar.group(5), t, *self._rich)

    def _of_rich_metrics(self, text: str, t: float, step: int, epoch: float) -> list[LoggedValue]:
        found = []
        for name, number in _RICH_PAIR.findall(text):
            tag, value = name + self._suffix, number_of(number)
            # A score of validation is shown until the next one; before the first step it is that of the sanity check.
            before = self._bar_values.get(tag, (None, math.nan))[1]
            is_new = form(name) != "v_num" and self._is_new_on_bar(tag, step, value)
            if is_new and (meaning_of(name).split == "train" or (before != value and step > 0)):
                found.append(LoggedValue(tag, step, t, value, epoch))
        return found

    def _of_main_bar(self, position: int, total: int) -> list[LoggedValue]:
        if self._main_bar is None:
            self._main_bar = total
        if total != self._main_bar:
            return []
        self._step = position
        waiting, self._waiting = self._waiting, []
        return [value._replace(step=position) for value in waiting]

    def _is_new_on_bar(self, tag: str, step: int | None, value: float) -> bool:
        """Whether a bar shows a value for the first time: a bar that moves on shows the old values again."""
        before = self._bar_values.get(tag)
        if before is not None and step is not None and before[0] is not None:
            same = before[1] == value or (before[1] != before[1] and value != value)
            if same and before[0] <= step <= before[0] + 1:
                return False
        if len(self._bar_values) < _COUNTERS_MAX or tag in self._bar_values:
            self._bar_values[tag] = (step, value)
        return True

    def _of_dict(self, text: str, suffix: str, t: float) -> list[LoggedValue]:
        pairs = [(match.group(2), number_of(match.group(4))) for match in _DICT_PAIR.finditer(text)]
        names = [name for name, _ in pairs]
        if not any(_is_context(name) or "loss" in name.lower() for name in names):
            return []
        by_form = {form(name): value for name, value in pairs}
        step = next((step_number(by_form[name]) for name in STEP_NAMES if name in by_form), None)
        epoch = next((by_form[name] for name in EPOCH_NAMES if name in by_form), None)
        self._epoch = epoch if epoch is not None else self._epoch
        has_bar = step is None and self._main_bar is not None
        self._step = step if step is not None else self._step
        values = [
            LoggedValue(name + suffix, None if has_bar else self._step, t, value, self._epoch)
            for name, value in pairs
            if not _is_context(name)
        ]
        if has_bar:
            self._waiting = values
            return []
        return values

    def _of_keras(self, match: re.Match[str], text: str, suffix: str, t: float) -> list[LoggedValue]:
        pairs = [(name, number_of(value)) for name, value in _KERAS_PAIR.findall(text, match.end() - 3)]
        pairs = [(name, value) for name, value in pairs if name != "ETA"]
        if not pairs:
            return []
        total = int(match.group(2)) if match.group(2).isdigit() else None
        step = self._counted("keras", int(match.group(1)), total)
        self._step = step
        return [
            LoggedValue(name + suffix, step, t, value, self._epoch)
            for name, value in pairs
            if self._is_new_on_bar(name + suffix, step, value)
        ]

    def _of_line(self, text: str, suffix: str, t: float) -> list[LoggedValue]:
        if not text_of.may_have_metrics(text):
            return []
        text, core, step = text_of.without_core(text)
        context = text_of.context_of(text)
        pairs = text_of.pairs_of(text)
        has_context = step is not None or context.step is not None or context.epoch is not None
        if not has_context and not _is_metrics_alone(text, pairs):
            return []
        most = _PROSE_LETTERS_WITH_STEP_MAX if pairs else _HEADER_LETTERS_MAX
        if has_context and _num_prose_letters(text, pairs) > most:
            return []
        if context.epoch is not None:
            self._epoch = context.epoch
        split = text_of.leading_split(text)
        position = step if step is not None else context.step
        if position is not None:
            step = self._counted(f"line {split}{core}{suffix}", position, context.total)
        if has_context:
            self._step = step if step is not None else None if context.epoch is not None else self._step
        return [
            LoggedValue(text_of.with_split(pair.name, split) + (core or suffix), self._step, t, pair.value, self._epoch)
            for pair in pairs
        ]

    def _counted(self, kind: str, position: int, total: int | None) -> int:
        """A step that counts on if the positions of a kind of line begin again, as they do in every epoch."""
        newest, before, epoch = self._counters.get(kind, _Counter(0, 0, self._epoch))
        self.has_repeats = self.has_repeats or (position == newest > 0 and epoch == self._epoch)
        is_same_again = position == newest and total is not None and epoch != self._epoch
        if self._is_mixed and position < newest and (epoch is None or self._epoch is None or self._epoch <= epoch):
            # Another rank is behind.
            return before + position
        if position < newest or is_same_again:
            # Positions from 0 without a total: the newest one plus one is the fewest steps that an epoch had.
            before += max(newest + (position == 0 and total is None), total or 0)
        if kind in self._counters or len(self._counters) < _COUNTERS_MAX:
            self._counters[kind] = _Counter(position, before, self._epoch)
        return before + position


def _is_context(name: str) -> bool:
    return form(name) in STEP_NAMES or form(name) in EPOCH_NAMES


def _is_metrics_alone(text: str, pairs: list[Named]) -> bool:
    """Whether a line without step and epoch is metrics and little else: `Test set: Average loss: 0.1`."""
    if not any(text_of.is_loss_or_score(pair.name) for pair in pairs):
        return False
    return _num_prose_letters(text, pairs) <= _PROSE_LETTERS_MAX and pairs[0].start <= _PROSE_LETTERS_MAX


def _num_prose_letters(text: str, pairs: list[Named]) -> int:
    """Letters of a line outside the pairs."""
    return sum(map(str.isalpha, text)) - sum(sum(map(str.isalpha, text[pair.start : pair.end])) for pair in pairs)


def _number(text: str) -> float | None:
    text = text.rstrip("%")
    plain = without_comma(text, is_decimal=False) if "," in text else None
    return decimal(plain or text) if text else None
