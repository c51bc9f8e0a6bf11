"""Reads metrics from console output: dictionaries, progress bars, and names with numbers beside a step or an epoch.

Console output is prose as much as data, so a line counts only if it has one of these forms. Whoever needs other forms
gives a pattern, which replaces all of them.

Console output is untrusted input: every repetition in these expressions is bounded, and so is the length of a line, so
the time to parse a line is linear in its length.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from tputui.logs.number_forms import PARAMETER, is_decimal_comma, unwrapped, with_point, without_comma
from tputui.logs.rows import EPOCH_NAMES, STEP_NAMES, LoggedValue, decimal, form, step_number
from tputui.logs.tags import meaning_of

LINE_CHARS_MAX = 4_096
"""Longer lines are not parsed."""
NAME_CHARS_MAX = 100
_ESCAPES = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]")
NUMBER = (
    r"[-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3}){1,6}|\d{1,20})(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?|\.\d{1,20}(?:e[-+]?\d{1,4})?"
    r"|nan|inf(?:inity)?)"
)
END = r"(?![\w:/]|\.\d|-\d|,\d)"
"""After a number: not a time, a version, a path, a date, a fraction or a number with a unit."""
_SPLITS = {
    "train": "train", "training": "train", "val": "val", "valid": "valid", "validation": "valid", "eval": "eval",
    "evaluation": "eval", "test": "test", "testing": "test", "dev": "dev",
}  # fmt: skip
_QUALIFIERS = (
    "train|training|val|valid|validation|eval|evaluation|test|testing|dev|avg|average|mean|running|total|learning|grad|"
    "gradient|weight|top|global|best|ema|smoothed|min|max|median|per-step|batch|epoch|class|box|mask|policy|value|"
    "generator|discriminator|g|d"
)
_NAME = r"[a-z_][\w./@-]{0,63}"
_KNOWN = (
    r"[\w.-]{0,40}loss(?:es)?[\w.-]{0,20}|lr|learning[ _]rate|acc(?:uracy)?(?:@?\d)?|top-?[15]|ppl|perplexity|bleu|"
    r"f1|auc|"
    r"mae|mse|rmse|miou|iou|dice|map|psnr|ssim|fid|wer|cer|bpb|bpc|bpd|elbo|kl|entropy|nll|"
    r"(?:grad|gradient)[ _-]?norm|gnorm|norm|score|err|error|precision|recall|rewards?|returns?|"
    r"mfu|tps|wps|rate|throughput|time|data|scale|temperature|momentum"
)
_PAIR = re.compile(
    rf"(?<![\w./@-])(?:({_QUALIFIERS}) )?({_NAME})\s{{0,4}}[=:]\s{{0,8}}({NUMBER})%?{END}", re.IGNORECASE
)
_SPACED = re.compile(rf"(?<![\w./@-])(?:({_QUALIFIERS}) )?({_KNOWN})\s{{1,8}}({NUMBER})%?{END}", re.IGNORECASE)
_KNOWN_NAME = re.compile(rf"(?:(?:{_QUALIFIERS})[_/ -]){{0,2}}(?:{_KNOWN})", re.IGNORECASE)
_LOSS_NAME = re.compile(r"loss|(?<![a-z])(?:acc|accuracy|ppl|perplexity|f1|auc)(?![a-z])", re.IGNORECASE)
_EPOCH = re.compile(
    r"(?<![\w./-])epoch\s{0,2}[:=#]?\s{0,2}[\[(]?\s{0,4}(\d{1,9}(?:\.\d{1,9})?)(?:\s?/\s?\d{1,9}|\s?of\s\d{1,9})?\]?"
    r"(?![\w.:])",
    re.IGNORECASE,
)
_GROUPED = r"[1-9]\d{0,2}(?:[,_]\d{3}){1,5}"
_COUNT = rf"{_GROUPED}|\d{{1,18}}"
_SHORT = r"\d{1,6}(?:\.\d{1,3})?(?:k|(?-i:M))(?!\w)"
"""`12k`, `1.5M`."""
_STEP = re.compile(
    r"(?<![\w./-])(?:global[ _-]?step|train[ _-]?step|step|iteration|iter|it|batch|update|num_updates)"
    rf"\s{{0,2}}[:=#]?\s{{0,8}}[\[(]?\s{{0,6}}({_SHORT}|{_COUNT})(?:\s?(?:/|of)\s?({_SHORT}|{_COUNT}))?(?![\w.]|,\d)",
    re.IGNORECASE,
)
_EPOCH_AND_STEP = re.compile(r"\s{0,4}\[\s{0,8}(\d{1,9}),\s{1,8}(\d{1,18})\]\s{1,4}(?=\w{0,20}loss)", re.IGNORECASE)
"""As in PyTorch's tutorials: `[2,  2000] loss: 1.234`."""
_POSITION = re.compile(
    rf"[\[(]\s{{0,8}}({_COUNT})\s?/\s?({_COUNT})\s{{0,2}}(?:\(\s?\d{{1,3}}(?:\.\d{{1,3}})?%\s?\))?\s?[\])]"
)
_RANK_WORD = r"(?:(?:global|local)[ _]?)?(?:rank|default|trainer|worker|replica|core|device|gpu|cuda|tpu)"
_RANK_BRACKETED = re.compile(rf"[\[(<]{_RANK_WORD}[ _:#=]{{0,2}}(\d{{1,5}})[\])>]:?\s?", re.IGNORECASE)
"""torchrun's `[default0]:`, torch's `[rank0]: `, accelerate's `[RANK 0] ` behind a log header, `[GPU0] `."""
_RANK_HEADER_CHARS_MAX = 120
_RANK_FIRST = re.compile(rf"\s{{0,4}}{_RANK_WORD}[ _:#=]?\s?(\d{{1,5}})\s?[:|>,-]\s", re.IGNORECASE)
_RANK_INLINE = re.compile(r"(?<![\w./-])(?:global_|local_)?rank\s?[=:]\s?(\d{1,5})(?![\w.]|,\d)", re.IGNORECASE)
_MPI_RANK = re.compile(r"\s{0,4}\[(?:[\w.-]{1,100}@)?\d{1,9},(\d{1,5})\]<std(?:out|err|diag)>:?\s?")
_POD = re.compile(r"\[pod/\S{1,200}?(?:-(\d{1,4}))?-(\d{1,5})(?:-[a-z0-9]{5})?/[^\]\s]{1,100}\]\s?")
"""`kubectl logs --prefix`, of a JobSet (`NAME-JOB-POD-SUFFIX`), an indexed job or a stateful set."""
_LABEL = re.compile(r"\s{0,5}(?:(\d{1,5}):\s|\[(\d{1,5})\]\s)")
"""`3: ` of `srun --label`, `[3] ` of `mpiexec -prepend-rank`: numbers that may be anything else."""
_XLA_PREFIX = re.compile(r"\s{0,4}\[xla:(\d{1,6})(?:/(\d{1,6}))?\]\s?\(\s?(\d{1,18})\s?\)\s", re.IGNORECASE)
_XLA_DEVICE = re.compile(r"(?<!\w)Device=(?:xla|tpu):(\d{1,6})(?:/(\d{1,6}))?(?!\w)", re.IGNORECASE)
_NOT_METRICS = {
    "pid", "port", "rank", "local_rank", "world_size", "seed", "gpu", "device", "v_num", "version", "line", "exit_code",
    "code", "id", "node", "host", "thread", "core", "worker", "eta", "date", "warning", "error_code", "errno", "status",
    "epoch", "epochs", "step", "steps", "global_step", "train_step", "iteration", "iter", "it", "batch", "update",
    "num_updates", "http", "https", "localhost", "job", "num_epochs", "max_steps", "total_steps", "max_epochs",
}  # fmt: skip
"""Names in the form of `rows.form` whose numbers are not metrics."""
_POSITION_NAMES = {*STEP_NAMES, "it", "batch", "steps", "epoch", "epochs"}
"""Names of whole numbers, in which a comma can only separate thousands."""
_DEVICES = {"xla", "cuda", "cpu", "tpu", "mps", "gpu", "npu", "hpu", "xpu", "hip", "meta"}
"""Names that are followed by the number of a device: `cuda:0`."""
_COMMA_NUMBER = re.compile(
    r"(?<![\w./@-])([a-z_][\w./@-]{0,63})(['\"]?\s{0,4}[=:]?\s{0,8}['\"]?)"
    r"([-+]?\d{1,20}(?:\.\d{3}){0,6},\d{1,20}(?:e[-+]?\d{1,4})?)(?![\w/]|[,.]\d)",
    re.IGNORECASE,
)
"""A name, and a number with one comma."""
_HAS_COMMA = re.compile(r"\d,\d")
_NAMED_POINT = re.compile(r"\w['\"]?[=: ]\s?['\"]?[-+]?\d{1,20}\.\d{1,20}(?![\w.])")
_FILES = re.compile(r".{0,99}\.(?:py|cc?|cpp|h|cu|rs|go|js|so|txt|json|ya?ml|toml|log|sh|pt|ckpt|html?)", re.IGNORECASE)


_HINT = re.compile(r"step|epoch|iter|batch|update|loss|acc|ppl|perplexity|f1|auc|xla:|tpu:|(?<!\w)it\W", re.IGNORECASE)
"""What every line with metrics contains, except for bars."""


class Named(NamedTuple):
    """A name and a number in a line."""

    name: str
    value: float
    start: int
    end: int


class LineContext(NamedTuple):
    """What a line says about the time of its values."""

    step: int | None
    total: int | None
    """Number of steps after which `step` begins again, or at which the run ends."""
    epoch: float | None
    end: int
    """Where the last of these numbers ends in the line."""


def plain(text: str) -> str:
    """The text without escape sequences and control characters; tabs and line breaks are blanks."""
    return _ESCAPES.sub("", text.replace("\t", " ").replace("\n", " ")).rstrip()


def may_have_metrics(text: str) -> bool:
    """Whether it is worth parsing a line: a cheap test that nearly all prose fails."""
    return _HINT.search(text) is not None


def number_of(text: str) -> float:
    """The value of text that `NUMBER` matches."""
    return float(text.replace(",", ""))


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


def _count_of(text: str) -> int:
    """The number of steps that `_SHORT` or `_COUNT` matches."""
    unit = {"k": 1e3, "m": 1e6}.get(text[-1].lower())
    return round(float(text[:-1]) * unit) if unit is not None else int(text.replace(",", "").replace("_", ""))


def context_of(text: str) -> LineContext:
    """Step and epoch that are named on a line."""
    both = _EPOCH_AND_STEP.match(text)
    if both is not None:
        return LineContext(int(both.group(2)), None, float(both.group(1)), both.end())
    step = _STEP.search(text)
    epoch = _EPOCH.search(text)
    position = _POSITION.search(text, epoch.end() - 1) if epoch is not None and step is None else None
    end = max((match.end() for match in (step, epoch, position) if match is not None), default=0)
    position_match = step or position
    if position_match is None:
        return LineContext(None, None, float(epoch.group(1)) if epoch else None, end)
    total = _count_of(position_match.group(2)) if position_match.group(2) else None
    return LineContext(_count_of(position_match.group(1)), total, float(epoch.group(1)) if epoch else None, end)


def pairs_of(text: str) -> list[Named]:
    """The pairs of name and number on a line that may be metrics, in their order; names are in lower case."""
    matches = {match.start(2): match for match in _SPACED.finditer(text)}
    matches |= {match.start(2): match for match in _PAIR.finditer(text)}
    return list(_named(match for _, match in sorted(matches.items())))


def _named(matches: Iterator[re.Match[str]]) -> Iterator[Named]:
    reached = 0
    for match in matches:
        name = match.group(2).lower().replace(" ", "_").rstrip("-./")
        if match.start() < reached or form(name) in _NOT_METRICS or _FILES.fullmatch(name) or name.startswith("__"):
            continue
        if name in _DEVICES and match.string[match.end(2) : match.start(3)] == ":":
            continue
        qualifier = (match.group(1) or "").lower()
        if qualifier in _SPLITS:
            name = f"{_SPLITS[qualifier]}/{name}"
        elif qualifier:
            name = f"{qualifier}_{name}"
        reached = match.end()
        yield Named(name, number_of(match.group(3)), match.start(), match.end())


def leading_split(text: str) -> str:
    """`train`, `valid`, `test`, ... if that is the first word of a line; else empty."""
    word = re.match(r"[\s*=>|\[-]{0,20}([a-z]{1,12})(?![\w/.=-])", text, re.IGNORECASE)
    return _SPLITS.get(word.group(1).lower(), "") if word is not None else ""


def with_split(name: str, split: str) -> str:
    """The name with a split, unless it has one: `loss` -> `valid/loss`."""
    has_split = re.split(r"[/_.-]", name, maxsplit=1)[0] in _SPLITS
    return name if has_split or not split else f"{split}/{name}"


def is_known(name: str) -> bool:
    """Whether a name is one that training scripts print: loss, accuracy, learning rate, ..."""
    return _KNOWN_NAME.fullmatch(name) is not None


def is_loss_or_score(name: str) -> bool:
    """Whether a name is certainly that of a metric, on a line without step or epoch."""
    return _LOSS_NAME.search(name) is not None


def without_rank(text: str, num_labels: int = 0) -> tuple[str, str]:
    """A line without the prefix of its rank, and the suffix of its tags: `[rank3]: loss` -> `loss`, `/rank3`.

    A bare number in front counts as the rank if it is less than `num_labels`.
    """
    outer = ""
    if (pod := _POD.match(text)) is not None:
        text = text[pod.end() :]
        job = f"/job{int(pod.group(1))}" if pod.group(1) and int(pod.group(1)) else ""
        outer = f"{job}/rank{int(pod.group(2))}"
    for pattern in (_MPI_RANK, _RANK_FIRST):
        if (match := pattern.match(text)) is not None:
            return text[match.end() :], _with_outer(outer, int(match.group(1)))
    if (match := _RANK_BRACKETED.search(text, 0, _RANK_HEADER_CHARS_MAX)) is not None:
        return text[: match.start()] + text[match.end() :], _with_outer(outer, int(match.group(1)))
    if num_labels and (match := _LABEL.match(text)) is not None:
        rank = int(match.group(1) or match.group(2))
        if rank < num_labels:
            return text[match.end() :], _with_outer(outer, rank)
    if not outer and (match := _RANK_INLINE.search(text)) is not None:
        return text, f"/rank{int(match.group(1))}"
    return text, outer


def _with_outer(outer: str, rank: int) -> str:
    """The suffix of a rank within a pod: the pod becomes part of the name, since its ranks are counted from 0."""
    return f"{outer.replace('/rank', '/pod')}/rank{rank}"


def without_core(text: str) -> tuple[str, str, int | None]:
    """A line without the core that torch_xla's examples name, the suffix of its tags, and its step if it follows."""
    match = _XLA_PREFIX.match(text)
    if match is not None:
        return text[match.end() :], f"/core{int(match.group(2) or match.group(1))}", int(match.group(3))
    device = _XLA_DEVICE.search(text)
    if device is not None:
        core = int(device.group(2) or device.group(1))
        return text[: device.start()] + text[device.end() :], f"/core{core}", None
    return text, "", None


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
_LATE_STATES_MAX = 64
"""A state of a bar that is further behind belongs to a bar that begins again."""
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


class _EpochCounter(NamedTuple):
    """A count that begins again in every epoch."""

    newest: int
    before: int
    """Steps before the newest restart."""
    epoch: float | None


class _ShownStates:
    """States of Keras' bar in one epoch. With JAX several threads draw it, so one may be printed after a later one."""

    def __init__(self, epoch: float | None) -> None:
        self.epoch = epoch
        self._lowest = self._highest = 0
        self._newest: deque[int] = deque(maxlen=_LATE_STATES_MAX)

    def add(self, position: int) -> bool:
        """Adds a state; returns whether it is a late one, which is left out. A bar that begins again is not late."""
        is_first = self._lowest <= position and self._highest - position >= _LATE_STATES_MAX
        if position < self._highest and position not in self._newest and not is_first:
            return True
        if position < self._highest:
            self._newest.clear()
        self._lowest = position if not self._newest else min(self._lowest, position)
        self._highest = position
        self._newest.append(position)
        return False


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
        values: list[LoggedValue] = []
        segments = line.split("\r") if "\r" in line else [line]
        for segment in segments[-SEGMENTS_MAX:]:
            if 0 < len(segment) <= LINE_CHARS_MAX:
                values += self._parse_segment(plain(segment), t)
        return values

    def _parse_segment(self, text: str, t: float) -> list[LoggedValue]:
        if self._pattern is not None:
            return self._of_pattern(self._pattern, text, t)
        text, self._begun = self._begun + text, ""
        if text.endswith(PARAMETER) and len(text) <= LINE_CHARS_MAX:
            self._begun = f"{text} "
            return []
        text, suffix = without_rank(unwrapped(text), self.num_labels)
        if not text or text.isspace():
            return []
        text, is_shown = with_decimal_points(text, is_usual=self._has_decimal_commas)
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
            for name, digits in groups.items()
            if (value := _number(digits)) is not None
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
        self._counters: dict[str, _EpochCounter] = {}
        """By kind of line."""
        self._bar_values: dict[str, tuple[int | None, float]] = {}
        """Newest step and value by tag of progress bars, which repeat their values."""
        self._keras = _ShownStates(None)
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
            if self._is_new_on_bar(tag := with_split(name, prefix) + suffix, step, value)
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
        values = []
        for name, number in _RICH_PAIR.findall(text):
            tag, value = name + self._suffix, number_of(number)
            # A score of validation is shown until the next one; before the first step it is that of the sanity check.
            before = self._bar_values.get(tag, (None, math.nan))[1]
            is_new = form(name) != "v_num" and self._is_new_on_bar(tag, step, value)
            if is_new and (meaning_of(name).split == "train" or (before != value and step > 0)):
                values.append(LoggedValue(tag, step, t, value, epoch))
        return values

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
        position, total = int(match.group(1)), int(match.group(2)) if match.group(2).isdigit() else None
        if self._keras.epoch != self._epoch:
            self._keras = _ShownStates(self._epoch)
        if self._keras.add(position):
            return []
        step = self._counted("keras", position, total)
        self._step = step
        return [
            LoggedValue(name + suffix, step, t, value, self._epoch)
            for name, value in pairs
            if self._is_new_on_bar(name + suffix, step, value)
        ]

    def _of_line(self, text: str, suffix: str, t: float) -> list[LoggedValue]:
        if not may_have_metrics(text):
            return []
        text, core, step = without_core(text)
        context = context_of(text)
        pairs = pairs_of(text)
        has_context = step is not None or context.step is not None or context.epoch is not None
        if not has_context and not _is_metrics_alone(text, pairs):
            return []
        most = _PROSE_LETTERS_WITH_STEP_MAX if pairs else _HEADER_LETTERS_MAX
        if has_context and _num_prose_letters(text, pairs) > most:
            return []
        if context.epoch is not None:
            self._epoch = context.epoch
        split = leading_split(text)
        position = step if step is not None else context.step
        if position is not None:
            step = self._counted(f"line {split}{core}{suffix}", position, context.total)
        if has_context:
            self._step = step if step is not None else None if context.epoch is not None else self._step
        return [
            LoggedValue(with_split(pair.name, split) + (core or suffix), self._step, t, pair.value, self._epoch)
            for pair in pairs
        ]

    def _counted(self, kind: str, position: int, total: int | None) -> int:
        """A step that counts on if the positions of a kind of line begin again, as they do in every epoch."""
        newest, before, epoch = self._counters.get(kind, _EpochCounter(0, 0, self._epoch))
        self.has_repeats = self.has_repeats or (position == newest > 0 and epoch == self._epoch)
        is_same_again = position == newest and total is not None and epoch != self._epoch
        if self._is_mixed and position < newest and (epoch is None or self._epoch is None or self._epoch <= epoch):
            # Another rank is behind.
            return before + position
        if position < newest or is_same_again:
            # Positions from 0 without a total: the newest one plus one is the fewest steps that an epoch had.
            before += max(newest + (position == 0 and total is None), total or 0)
        if kind in self._counters or len(self._counters) < _COUNTERS_MAX:
            self._counters[kind] = _EpochCounter(position, before, self._epoch)
        return before + position


def _is_context(name: str) -> bool:
    return form(name) in STEP_NAMES or form(name) in EPOCH_NAMES


def _is_metrics_alone(text: str, pairs: list[Named]) -> bool:
    """Whether a line without step and epoch is metrics and little else: `Test set: Average loss: 0.1`."""
    if not any(is_loss_or_score(pair.name) for pair in pairs):
        return False
    return _num_prose_letters(text, pairs) <= _PROSE_LETTERS_MAX and pairs[0].start <= _PROSE_LETTERS_MAX


def _num_prose_letters(text: str, pairs: list[Named]) -> int:
    """Letters of a line outside the pairs."""
    return sum(map(str.isalpha, text)) - sum(sum(map(str.isalpha, text[pair.start : pair.end])) for pair in pairs)


def _number(text: str) -> float | None:
    text = text.rstrip("%")
    plain = without_comma(text, is_decimal=False) if "," in text else None
    return decimal(plain or text) if text else None
