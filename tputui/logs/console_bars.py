"""Progress bars in console output: those of tqdm, Lightning, Keras and Rich, as positions with pairs. Pure."""

from __future__ import annotations

import re
from collections import deque

from tputui.logs.console_lines import END, NUMBER

LATE_STATES_MAX = 64
"""A state of a bar that is further behind belongs to a bar that begins again."""
_VALUES_MAX = 256

TQDM = re.compile(
    r"\s{0,40}(?:([^%]{1,200}?): {0,3})?\s{0,3}\d{1,3}%\|[^|]{0,400}\|\s{0,9}(\d{1,18})/(\d{1,18})"
    r" \[(?:\d{1,4}:){1,3}\d{2}<[^,\]]{1,20}, {0,9}[^,\]]{0,40}(?:, ([^\]]{1,2000}))?\]"
)
TQDM_PAIR = re.compile(
    rf"(?:^|, )\s{{0,2}}([A-Za-z_][^=:,]{{0,60}})(?:=|: ?)({NUMBER})%?(?=,|\s{{0,9}}$)", re.IGNORECASE
)
THIN_BAR = re.compile(r"% [\u2500\u2501\u2578\u257a]{1,200} (\d{1,18}/\d{1,18}) [^|]{0,60}$")
"""The bar of Ultralytics, which follows a description as that of tqdm does: `64: 25% ━━━──── 1/4 1.2it/s 1.4s<2.6s`."""
BAR_EPOCH = re.compile(r"epoch\W{0,3}(\d{1,9})(?:/(\d{1,9}))?", re.IGNORECASE)
BAR_SPLIT = re.compile(r"(?<![a-z])(train|val|eval|test)(?:ing|id|idation|idating|uation|uating)?\b", re.IGNORECASE)
KERAS = re.compile(
    r"\s{0,9}(\d{1,18})/(\d{1,18}|Unknown)\s{1,3}(?:\[?[\u2501=>.]{1,200}\]? ?)?"
    r"(?=[^|]{0,60}?(?:/step|/epoch|ETA:|\ds - |s \| Tot: ))"
)
KERAS_PAIR = re.compile(rf" - ([A-Za-z_][\w/ .-]{{0,60}}): ({NUMBER}){END}", re.IGNORECASE)
OVERTYPED = re.compile(r"(\s{0,9}\[[=>.]{1,200}\]\s{1,4}Step: [^\x08]{1,400})\x08{2,400} ?(\d{1,18}/\d{1,18}) ?")
"""A bar over which its position is written with backspaces, as many scripts that train on CIFAR have it."""
RICH = re.compile(
    r"\s{0,4}(?:Epoch (\d{1,9})/-?\d{1,9}|(\w{1,20}(?: \w{1,20})?))\s{1,9}[\u2501\u2578\u257a -]{1,400} "
    r"(\d{1,18})/(\d{1,18}|--)\s{1,9}[\d:-]{1,20} \u2022\s{1,20}(?:[\d:-]{1,20}\s{1,9})?[\d.]{1,20}it/s(.*)"
)
"""Lightning's bar by Rich, which counts epochs from 0; its metrics continue on indented lines."""
RICH_MORE = re.compile(r"\s{20,400}(?:[\d:-]{1,20}\s{1,99})?(?=[A-Za-z_])")
RICH_PAIR = re.compile(rf"(?:^|\s)([A-Za-z_][\w./-]{{0,60}}): ({NUMBER})(?=\s|$)", re.IGNORECASE)


class ShownStates:
    """States of Keras' bar in one epoch. With JAX several threads draw it, so one may be printed after a later one."""

    def __init__(self, epoch: float | None) -> None:
        self.epoch = epoch
        self.evaluates = False
        """Whether the bar is that of `evaluate`: one that begins after the training of its epoch has ended."""
        self._total: int | None = None
        self._lowest = self._highest = 0
        self._newest: deque[int] = deque(maxlen=LATE_STATES_MAX)

    def add(self, position: int, total: int | None) -> bool:
        """Adds a state; returns whether it is a late one, which is left out. A bar that begins again is not late."""
        is_other = self._total is not None and total != self._total
        is_first = self._lowest <= position and self._highest - position >= LATE_STATES_MAX
        if not is_other and position < self._highest and position not in self._newest and not is_first:
            return True
        if is_other or position < self._highest:
            is_complete = self._highest == self._total
            self.evaluates = self.evaluates or (is_complete and (is_other or self.epoch is not None))
            self._newest.clear()
        self._lowest = position if not self._newest else min(self._lowest, position)
        self._highest, self._total = position, total
        self._newest.append(position)
        return False


class ShownValues:
    """Newest step and value by tag of progress bars, which repeat their values."""

    def __init__(self) -> None:
        self._by_tag: dict[str, tuple[int | None, float]] = {}

    def is_new(self, tag: str, step: int | None, value: float, *, is_validation: bool) -> bool:
        """Whether a bar shows a value for the first time: a bar that moves on shows the old values again, and a value
        of a validation until the next one."""
        before = self._by_tag.get(tag)
        if before is not None and (before[1] == value or (before[1] != before[1] and value != value)):
            at = before[0]
            if is_validation or (step is not None and at is not None and at <= step <= at + 1):
                return False
        if len(self._by_tag) < _VALUES_MAX or tag in self._by_tag:
            self._by_tag[tag] = (step, value)
        return True
