"""Reads metrics from console output: dictionaries, progress bars, tables, and names with numbers beside a position.

Console output is prose as much as data, so a number counts only on a line that trains or evaluates; see
`console_stream`. Whoever needs other forms gives a pattern, which replaces all of them.

Console output is untrusted input: every repetition in these expressions is bounded, and so is the length of a line, so
the time to parse a line is linear in its length.
"""

from __future__ import annotations

import re
from typing import Any

from tputui.logs.console_bars import OVERTYPED
from tputui.logs.console_lines import is_known
from tputui.logs.console_progress import NOTHING_REPORTED
from tputui.logs.console_stream import Stream
from tputui.logs.number_forms import PARAMETER, is_decimal_comma, unwrapped, with_point, without_comma
from tputui.logs.rows import STEP_NAMES, LoggedValue, decimal, form, step_number
from tputui.logs.tags import translated

LINE_CHARS_MAX = 4_096
"""Longer lines are not parsed."""
_ESCAPES = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
_RANK_WORDS = ("rank", "default", "trainer", "worker", "replica", "core", "device", "gpu", "cuda", "tpu")
_RANK_WORD = rf"(?:(?:global|local)[ _]?)?(?:{'|'.join(_RANK_WORDS)})"
_RANK_BRACKETED = re.compile(rf"[\[(<](?!trainer:){_RANK_WORD}[ _:#=]{{0,2}}(\d{{1,5}})[\])>]:?\s?", re.IGNORECASE)
"""torchrun's `[default0]:`, torch's `[rank0]: `, accelerate's `[RANK 0] ` behind a log header, `[GPU0] `."""
_RANK_HEADER_CHARS_MAX = 120
_RANK_FIRST = re.compile(rf"\s{{0,4}}{_RANK_WORD}[ _:#=]?\s?(\d{{1,5}})\s?[:|>,-]\s", re.IGNORECASE)
_RANK_INLINE = re.compile(r"(?<![\w./-])(?:global_|local_)?rank\s?[=:]\s?(\d{1,5})(?![\w.]|,\d)", re.IGNORECASE)
_MPI_RANK = re.compile(r"\s{0,4}\[(?:[\w.-]{1,100}@)?\d{1,9},(\d{1,5})\]<std(?:out|err|diag)>:?\s?")
_POD = re.compile(r"\[pod/\S{1,200}?(?:-(\d{1,4}))?-(\d{1,5})(?:-[a-z0-9]{5})?/[^\]\s]{1,100}\]\s?")
"""`kubectl logs --prefix`, of a JobSet (`NAME-JOB-POD-SUFFIX`), an indexed job or a stateful set."""
_HOST_AND_RANK = re.compile(
    r"\s{0,4}(?!(?:epoch|step|iter|iteration|batch|train|valid|eval|test|info|warning)s?:)[a-z][\w.-]{1,60}:"
    r"(\d{1,5}): ",
    re.IGNORECASE,
)
"""`node12:3: `."""
_LABEL = re.compile(r"\s{0,5}(?:(\d{1,5}):\s|\[(\d{1,5})\]\s)")
"""`3: ` of `srun --label`, `[3] ` of `mpiexec -prepend-rank`: numbers that may be anything else."""
SEGMENTS_MAX = 256
"""Updates of a progress bar that are parsed of one line; of more, the last ones."""
CONTEXT_GROUPS = ("step", "epoch", "core")
"""Named groups of a pattern that are not metrics."""
_RANKS_MAX = 4_096
"""Ranks with a stream of their own; the lines of further ones count as one stream."""

SUMMARY_OF_WANDB = "wandb: "
"""How the lines begin in which W&B sums up at the end what is in its own file."""
_POSITION_NAMES = {*STEP_NAMES, "it", "batch", "steps", "epoch", "epochs"}
"""Names of whole numbers, in which a comma can only separate thousands."""
_COMMA_NUMBER = re.compile(
    r"(?<![\w./@-])([a-z_][\w./@-]{0,63})(['\"]?\s{0,4}[=:]?\s{0,8}['\"]?)"
    r"([-+]?\d{1,20}(?:\.\d{3}){0,6},\d{1,20}(?:e[-+]?\d{1,4})?)(?![\w/]|[,.]\d)",
    re.IGNORECASE,
)
"""A name, and a number with one comma."""
_HAS_COMMA = re.compile(r"\d,\d")
_NAMED_POINT = re.compile(r"\w['\"]?[=: ]\s?['\"]?[-+]?\d{1,20}\.\d{1,20}(?![\w.])")


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tabs are two blanks, line breaks one."""
    return _ESCAPES.sub("", text.replace("\t", "  ").replace("\n", " ")).rstrip()


def with_decimal_points(text: str, *, is_usual: bool) -> tuple[str, bool]:
    """A line with points for decimal commas, and whether it shows that commas are decimal separators.

    `0,532` can only be a decimal number. `1,234` is one if other numbers of the line are, or `is_usual`: those of
    lines before; else its comma separates thousands, which a number with a point on the same line confirms.
    """
    if _HAS_COMMA.search(text) is None:
        return text, False
    numbers = [match for match in _COMMA_NUMBER.finditer(text) if form(match[1]) not in _POSITION_NAMES]
    is_shown = any(is_decimal_comma(match[3]) and is_known(match[1]) for match in numbers)
    if not (is_shown or is_usual):
        return text, False
    parts: list[str] = []
    reached = 0
    for match in numbers:
        is_decimal = is_decimal_comma(match[3]) or _NAMED_POINT.search(text) is None
        number = with_point(match[3]) if is_decimal else None
        if number is not None:
            parts += (text[reached : match.start(3)], number)
            reached = match.end(3)
    return "".join((*parts, text[reached:])), is_shown


def without_rank(text: str, num_labels: int = 0) -> tuple[str, str]:
    """A line without the prefix of its rank, and the suffix of its tags: `[rank3]: loss` -> `loss`, `/rank3`.

    A bare number in front counts as the rank if it is less than `num_labels`.
    """
    outer = ""
    if text.startswith("[pod/") and (pod := _POD.match(text)) is not None:
        text = text[pod.end() :]
        job = f"/job{int(pod.group(1))}" if pod.group(1) and int(pod.group(1)) else ""
        outer = f"{job}/rank{int(pod.group(2))}"
    lowered = text.lower()
    has_word = any(word in lowered for word in _RANK_WORDS)
    for pattern in (_MPI_RANK, _RANK_FIRST, _HOST_AND_RANK) if has_word or "]<" in text or ": " in text[:80] else ():
        if (match := pattern.match(text)) is not None:
            return text[match.end() :], _with_outer(outer, int(match.group(1)))
    if has_word and (match := _RANK_BRACKETED.search(text, 0, _RANK_HEADER_CHARS_MAX)) is not None:
        return text[: match.start()] + text[match.end() :], _with_outer(outer, int(match.group(1)))
    if num_labels and (match := _LABEL.match(text)) is not None:
        rank = int(match.group(1) or match.group(2))
        if rank < num_labels:
            return text[match.end() :], _with_outer(outer, rank)
    if not outer and "rank" in lowered and (match := _RANK_INLINE.search(text)) is not None:
        return text, f"/rank{int(match.group(1))}"
    return text, outer


def _with_outer(outer: str, rank: int) -> str:
    """The suffix of a rank within a pod: the pod becomes part of the name, since its ranks are counted from 0."""
    return f"{outer.replace('/rank', '/pod')}/rank{rank}"


def check_pattern(text: str) -> str | None:
    """The reason why a text cannot be the pattern of `[script.console]`; None if it can."""
    try:
        groups = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    if not set(groups) - set(CONTEXT_GROUPS):
        return "has no named group for a metric, such as (?P<loss>[-+.e0-9]+)"
    return None


class ConsoleParser:
    """Parses the lines of one stream, in their order. Remembers step and epoch of the lines before, for each rank."""

    def __init__(self, pattern: str | None = None) -> None:
        """With a `pattern`, only its matches are read: groups `step`, `epoch` and `core`, every other one a metric.

        `__` in the name of a group is `/` in the tag. Raises `re.error` if the pattern is not valid.
        """
        self._pattern = re.compile(pattern) if pattern is not None else None
        self._ranks: dict[str, Stream] = {}
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
        self.reported = NOTHING_REPORTED
        """What a process of the command reports of its epochs."""

    @property
    def is_mixed(self) -> bool:
        """Whether several ranks print metrics without their rank, so that their lines cannot be assigned to ranks."""
        return self.num_ranks > 1 and "" in self._ranks and self._ranks[""].progress.has_repeats

    @property
    def config(self) -> dict[str, Any]:
        """Steps and epochs of the whole training and the metric of the best epoch, as far as they are printed, under
        the names of a configuration."""
        ranks = [rank.progress for rank in self._ranks.values()]
        steps = next((rank.total_steps for rank in ranks if rank.total_steps), None)
        epochs = next((rank.epochs for rank in ranks if rank.epochs), None)
        chosen = next(({"monitor": rank.chosen} for rank in self._ranks.values() if rank.chosen), None)
        names = {"total_steps": steps, "total_epochs": epochs, "checkpoint": chosen}
        return {name: value for name, value in names.items() if value}

    def finish(self) -> list[LoggedValue]:
        """The values that waited for further lines, at the end of the output."""
        return [value for rank in self._ranks.values() for value in rank.finish()]

    def parse(self, line: str, t: float, *, evaluates: bool = False) -> list[LoggedValue]:
        """The values on a line printed at `t` (Unix time), maybe in an evaluation; `\\r` separates updates of a bar."""
        values: list[LoggedValue] = []
        segments = line.split("\r") if "\r" in line else [line]
        for segment in segments[-SEGMENTS_MAX:]:
            if 0 < len(segment) <= LINE_CHARS_MAX:
                if "\b" in segment:
                    segment = OVERTYPED.sub(r"\2\1", segment)
                values += self._parse_segment(plain(segment), t, evaluates)
        return values

    def _parse_segment(self, text: str, t: float, evaluates: bool) -> list[LoggedValue]:
        if self._pattern is not None:
            return self._of_pattern(self._pattern, text, t)
        if text.startswith(SUMMARY_OF_WANDB):
            return []
        text, self._begun = self._begun + text, ""
        if text.endswith(PARAMETER) and len(text) <= LINE_CHARS_MAX:
            self._begun = f"{text} "
            return []
        text = text if text.isascii() else translated(text)
        text, suffix = without_rank(unwrapped(text), self.num_labels)
        if not text or text.isspace():
            return []
        text, is_shown = with_decimal_points(text, is_usual=self._has_decimal_commas)
        self._has_decimal_commas = self._has_decimal_commas or is_shown
        rank = self._rank(suffix)
        rank.progress.reported = self.reported
        ended = rank.place(evaluates=evaluates)
        return ended + rank.parse(text, t, is_mixed=self.num_ranks > 1 and not suffix)

    def _rank(self, suffix: str) -> Stream:
        """The stream of a rank. Rank 0 has no suffix as long as it is the only one."""
        rank = self._ranks.get(suffix)
        if rank is None:
            suffix = suffix if len(self._ranks) < _RANKS_MAX else ""
            is_alone = suffix == "/rank0" and max(self.num_ranks, self.num_labels) < 2
            is_alone = is_alone and not any(other for other in self._ranks)
            rank = self._ranks.setdefault(suffix, Stream("" if is_alone else suffix))
            if suffix and suffix != "/rank0" and "/rank0" in self._ranks:
                self._ranks["/rank0"].suffix = "/rank0"
        return rank

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
            for name, digits in groups.items()
            if (value := _number(digits)) is not None
        ]


def _number(text: str) -> float | None:
    plain = without_comma(text, is_decimal=False) if "," in text else None
    return decimal(plain or text) if text else None
