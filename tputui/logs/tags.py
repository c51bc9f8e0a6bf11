"""What the tag of a logged value means: the name of its metric, its split, and its core.

The rule, in this order; letters may be upper or lower case:

1. A pattern of the user (`[script.tags]`), if it matches the whole tag.
2. A core is named by `core`, `rank`, `replica`, `device`, `shard`, `worker`, `process`, `tpu`, `gpu` or `xla` with a
   number, as a part of its own or at the end of a part: `loss/core3`, `loss_rank3`, `rank3/loss`, `[xla:0] loss`.
3. A split is named by a part of its own, or by the beginning or end of the last part: `train/loss`, `Loss/valid`,
   `eval_loss`, `acc_val`. `test` stays in the name, and its values count as validation.
4. The rest is the name. `Loss` and `loss/loss` become `loss`.

Two tags never become the same metric: the second one keeps its tag as its name. Pure.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import LOSS, LOSS_NAMES, class_of, in_form

CORE_MAX = 1 << 16
NAMES_MAX = 4_096
"""Tags whose meaning is stored; further ones are left out ..."""
NAMES_MAX_OF_CLASS = (1 << 16, NAMES_MAX + 1_024, NAMES_MAX)
"""... except losses and validation values, by the class of `metric_names`."""
_LEFT_OUT_MAX = 1 << 16

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "tr"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "eval", "evaluation", "dev"), "valid"),
}  # fmt: skip
_SPLIT = "|".join(sorted(_SPLITS, key=len, reverse=True))
_SEPARATOR = r"[_.:\- ]"
_CORE = r"(?:local_rank|core|rank|replica|device|shard|worker|process|proc|tpu|gpu|xla)[_:\-. ]?(\d{1,5})"
_BRACKETED_CORE = re.compile(rf"\s*\[\s*{_CORE}\s*\]\s*", re.IGNORECASE)
_CORE_PART = re.compile(_CORE, re.IGNORECASE)
_CORE_END = re.compile(rf"(.+?){_SEPARATOR}{_CORE}", re.IGNORECASE)
_SPLIT_START = re.compile(rf"({_SPLIT}){_SEPARATOR}+(.+)", re.IGNORECASE)
_SPLIT_END = re.compile(rf"(.+?){_SEPARATOR}+({_SPLIT})", re.IGNORECASE)
_TEST = re.compile(r"(?:.*[/_.:\- ])?test(?:ing)?(?:[/_.:\- ].*)?", re.IGNORECASE | re.DOTALL)


class TagMeaning(NamedTuple):
    """What a tag means."""

    name: str
    """Name of the metric, without split and core."""
    split: Split
    core: int | None = None
    """Global index of the core; None if the tag names none."""

    @property
    def label(self) -> str:
        """The name, with the core if there is one."""
        return self.name if self.core is None else f"{self.name}/core{self.core}"


class BadPattern(ValueError):
    """A pattern for tags cannot be used; the message is the reason."""


class TagRule:
    """The rule by which tags are read, with the pattern of the user if there is one."""

    def __init__(self, pattern: str | None = None, loss: str | None = None) -> None:
        """`pattern` is a regular expression with the group `name`, and optionally `split` and `core`; `loss` is the tag
        that is the training loss. Raises `BadPattern`."""
        self._pattern = _compiled(pattern) if pattern else None
        self.loss = loss or None

    def meaning_of(self, tag: str) -> TagMeaning:
        """What a tag means, regardless of other tags."""
        match = self._pattern.fullmatch(tag) if self._pattern is not None else None
        return meaning_of(tag) if match is None else _by_groups(match.groupdict(), tag)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise BadPattern(f"{pattern!r} is not a regular expression: {error}") from None
    groups = set(compiled.groupindex)
    if "name" not in groups:
        raise BadPattern(f"{pattern!r} has no group (?P<name>...)")
    if others := groups - {"name", "split", "core"}:
        raise BadPattern(f"{pattern!r} has a group {sorted(others)[0]!r}; expected name, split and core")
    return compiled


def _by_groups(groups: dict[str, str | None], tag: str) -> TagMeaning:
    split, core = groups.get("split") or "", groups.get("core") or ""
    name = groups["name"] or tag
    is_valid = split.lower() not in ("", *(word for word, of in _SPLITS.items() if of == "train"))
    number = int(core) if core.isascii() and core.isdecimal() and len(core) <= 5 else None
    return TagMeaning(_canonical(name), "valid" if is_valid else "train", number)


def meaning_of(tag: str) -> TagMeaning:
    """What a tag means by the rule above, without a pattern of the user."""
    rest, core = _without_core(tag)
    if _TEST.fullmatch(rest):
        return TagMeaning(rest, "valid", core)
    # `add_scalars` repeats the tag in the name of a folder.
    parts = [part for part, _ in itertools.groupby(rest.split("/")) if part]
    split: Split | None = None
    for place, part in enumerate(parts):
        split = _SPLITS.get(part.lower())
        if split is not None and len(parts) > 1:
            del parts[place]
            break
        split = None
    if split is None and parts:
        parts[-1], split = _without_split(parts[-1])
    return TagMeaning(_canonical("/".join(parts) or tag), split or "train", core)


def _without_core(tag: str) -> tuple[str, int | None]:
    """A tag without the part that names a core, and the core."""
    bracketed = _BRACKETED_CORE.search(tag)
    if bracketed is not None:
        rest = f"{tag[: bracketed.start()]}/{tag[bracketed.end() :]}".strip("/")
        return (rest, int(bracketed[1])) if rest else (tag, None)
    parts = tag.split("/")
    for place, part in enumerate(parts):
        if (whole := _CORE_PART.fullmatch(part)) is not None and len(parts) > 1:
            return "/".join(parts[:place] + parts[place + 1 :]), int(whole[1])
        if (end := _CORE_END.fullmatch(part)) is not None:
            return "/".join([*parts[:place], end[1], *parts[place + 1 :]]), int(end[2])
    return tag, None


def _without_split(part: str) -> tuple[str, Split | None]:
    if (start := _SPLIT_START.fullmatch(part)) is not None:
        return start[2], _SPLITS[start[1].lower()]
    if (end := _SPLIT_END.fullmatch(part)) is not None:
        return end[1], _SPLITS[end[2].lower()]
    return part, None


def _canonical(name: str) -> str:
    """The name; `loss` however often and in whatever case it is written."""
    return LOSS if set(name.lower().split("/")) == {LOSS} else name


def loss_rank(meaning: TagMeaning) -> int | None:
    """How likely a metric is the training loss, 0 most; None if it is not.

    First the names of `LOSS_NAMES`, then names with such a last part (`learning/loss`), then names with the word
    `loss`; only of the training split.
    """
    if meaning.split != "train":
        return None
    name = in_form(meaning.name)
    for base, wanted in ((0, name), (len(LOSS_NAMES), name.rpartition("/")[2])):
        if wanted in LOSS_NAMES:
            return base + LOSS_NAMES.index(wanted)
    return 2 * len(LOSS_NAMES) if LOSS in re.split(r"[/_]", name) else None


class TagNames:
    """Gives every tag of every log a metric of its own."""

    def __init__(self, rule: TagRule) -> None:
        self._rule = rule
        self._meanings: dict[tuple[str, str], TagMeaning] = {}
        self._taken: dict[tuple[str, Split], str] = {}
        """The log that has a metric, by label and split."""
        self._left_out: dict[tuple[str, str], None] = {}
        """Tags left out because there are too many."""

    @property
    def num_left_out(self) -> int:
        """Number of tags left out because there are too many."""
        return len(self._left_out)

    @property
    def left_out(self) -> str:
        """A sentence if tags are left out; empty otherwise."""
        if not self._left_out:
            return ""
        (source, tag), *others = self._left_out
        named = f"{tag[:100]} and others" if others else tag[:100]
        which = "1 is" if not others else f"{len(self._left_out):,} are"
        return f"{source}: too many metrics; {which} left out: {named}"

    def meaning_of(self, source: str, tag: str) -> TagMeaning | None:
        """What a tag of a log means. The same metric for the same tag always, and never for another one.

        None if there are too many tags.
        """
        key = (source, tag)
        previous = self._meanings.get(key)
        if previous is not None:
            return previous
        if key in self._left_out:
            return None
        meaning = self._rule.meaning_of(tag)
        if len(self._meanings) >= NAMES_MAX and len(self._meanings) >= self._most(tag, meaning):
            if len(self._left_out) < _LEFT_OUT_MAX:
                self._left_out[key] = None
            return None
        if (meaning.label, meaning.split) in self._taken:
            numbered = (f"{tag} ({source}, {number})" for number in itertools.count(2))
            names = itertools.chain((tag, f"{tag} ({source})"), numbered)
            free = next(name for name in names if (name, meaning.split) not in self._taken)
            meaning = TagMeaning(free, meaning.split)
        self._meanings[key] = meaning
        self._taken[meaning.label, meaning.split] = source
        return meaning

    def _most(self, tag: str, meaning: TagMeaning) -> int:
        """Number of tags at which a new one is left out."""
        is_named = self._rule.loss in (tag, meaning.name)
        return NAMES_MAX_OF_CLASS[0 if is_named else class_of(meaning.name, meaning.split)]

    def is_known(self, tag: str) -> bool:
        """Whether a log has the metric of a tag."""
        meaning = self._rule.meaning_of(tag)
        return any((name, meaning.split) in self._taken for name in (meaning.label, meaning.name))
