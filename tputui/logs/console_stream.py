"""Reads the values on the lines of one stream: those of a rank, or of all whose lines do not name it.

What a number is follows from its line and from the lines before: a line with a position trains, a heading or a line
that names a split rules those below it until training goes on, and a series is a name on lines of one template.
"""

from __future__ import annotations

import re

from tputui.logs.console_bars import (
    BAR_EPOCH,
    BAR_SPLIT,
    KERAS,
    KERAS_PAIR,
    RICH,
    RICH_MORE,
    RICH_PAIR,
    THIN_BAR,
    TQDM,
    TQDM_PAIR,
    ShownStates,
    ShownValues,
)
from tputui.logs.console_lines import (
    HEADING,
    NUMBER,
    PrintedField,
    PrintedLine,
    PrintedPosition,
    is_configuration,
    is_known,
    is_loss_or_score,
    is_rate,
    meaning_of_name,
    number_of,
    split_between,
    split_of,
    taken_apart,
    unnamed_results,
    without_header,
)
from tputui.logs.console_progress import NOTHING_REPORTED, PrintedProgress
from tputui.logs.console_tables import PrintedBox, PrintedTable, Row, is_rule
from tputui.logs.rows import EPOCH_NAMES, STEP_NAMES, LoggedValue, form, step_number
from tputui.logs.tags import choice_rank, is_test

_TEST_HEAD = re.compile(r"test(?:ing)?\b")
_VALIDATION_HEAD = re.compile(r"val(?:id\w{0,7})?\b|dev\b")
_MEAN_HEAD = re.compile(r"\bema\b")
_XLA_PREFIX = re.compile(r"\s{0,4}\[xla:(\d{1,6})(?:/(\d{1,6}))?\]\s?\(\s?(\d{1,18})\s?\)\s", re.IGNORECASE)
_XLA_DEVICE = re.compile(
    r"(?<!\w)(?:Device=(?:xla|tpu):|(?<=training on )xla:)(\d{1,6})(?:/(\d{1,6}))?(?!\w)", re.IGNORECASE
)
_DICT_SPLIT = re.compile(r"(['\"])(?:split|phase|stage|mode|subset)\1\s?: ?(['\"])(\w{1,20})\2", re.IGNORECASE)
"""What a dictionary says of which split it is."""
_DICT_PAIR = re.compile(rf"(['\"])([^'\"\\{{}}]{{1,100}})\1\s?: ?(['\"]?)({NUMBER})\3(?=\s?[,}}])", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_HINTS = (
    "loss", "step", "epoch", "iter", "acc", "batch", "update", "episode", "round", "val", "eval", "test", "train",
    "learn", "err", "ppl", "perplexity", "f1", "auc", "/s", "per_s", "ps:", "xla:", "tpu:", " it",
    " tokens with ", " avg,", " iou=",
)  # fmt: skip
"""What every line with metrics contains, in lower case, except for those that begin with a number, and evaluations."""
_BEGINNING = re.compile(r"\s{0,9}(?:\[\s{0,8}\d{1,12}\s?[\]/]|\d{1,12}: |\* )")
_KEEPS = re.compile(r"new best|improved|creased|best.{0,200}sav|sav.{0,200}best")
_LETTERS = re.compile(r"[a-z]+")
_LABEL = re.compile(
    r"(?:(?:INFO|DEBUG):)?(?:(?:train|eval|valid|val|test|dev)\w{0,10}(?: (?:metrics|results?))?)?[\s:>|-]{0,8}"
)
"""What stands before a dictionary of metrics."""
_SANITY = "sanity"
_LETTERS_MAX = 24
"""Letters that are part of neither names nor positions, on a line without a position, at most ..."""
_LETTERS_WITH_EPOCH_MAX = 45
_LETTERS_WITH_STEP_MAX = 70
_LETTERS_BEHIND_MAX = 24
"""... and behind the last number."""
_HEADER_LETTERS_MAX = 20
"""Letters of a line that has an epoch and nothing else, such as `Epoch 3/10`, besides it."""
_SETTINGS = re.compile(
    r"(?:^|_)(?:num|number|parameters|params|steps)(?:_|$)|_(?:weight|threshold|window|factor|target|ratio)$"
)
"""In names that are not metrics on a line without a position."""
_NAMES_MAX = 4_096
_SPLIT_WORDS = re.compile(r"\b(?:train(?:ing)?(?:_inner)?|epoch|end|of|step|iter|iteration|on|done|finished)\b")


class Stream:
    """Parses the lines of one stream, in their order."""

    def __init__(self, suffix: str) -> None:
        """`suffix` is that of the tags."""
        self.suffix = suffix
        self.progress = PrintedProgress()
        self._evaluates = False
        """Whether the next lines are known to be printed in an evaluation."""
        self._trained: set[str] = set()
        """The templates of lines of training that were not."""
        self._in_evaluation = False
        self._evaluated: dict[str, LoggedValue] = {}
        """Values of an evaluation that goes on, by tag; those of its last line count."""
        self._evaluated_to = 0
        """Newest position in it; -1 below its heading."""
        self._of_weights: set[str] = set()
        """Names of evaluations of the weights, rather than of their mean."""
        self._results: dict[str, LoggedValue] = {}
        """The newest value of every tag of evaluations, without its time."""
        self.chosen = ""
        """The metric by which the script says that it keeps its best model; empty if it does not."""
        self._validates = False
        """Whether an evaluation was printed that is not called a test, so that a test is another one."""
        self._templates: dict[str, str] = {}
        """The template of the lines that have a name, by name."""
        self._skips_next = False
        self._is_listed = False
        """Whether the line before was a metric alone, so that a pair below it is one, too."""
        self._shown = ShownValues()
        self._keras = ShownStates(None)
        self._main_bar: int | None = None
        """Total of the bar of Hugging Face's `Trainer`, which counts its steps, or of one for each epoch."""
        self._bar_at = self._before_bar = 0
        """Its newest position, and the steps before it began again."""
        self._waiting: list[LoggedValue] = []
        """Values of a dictionary that was printed above this bar, whose next update has their step."""
        self._rich: tuple[int, float] | None = None
        """Step and epoch of a bar by Rich whose metrics may continue on the next line."""
        self._table = PrintedTable()
        self._box = PrintedBox()

    def finish(self) -> list[LoggedValue]:
        """The values that waited for later lines, at the end of the output."""
        waiting, self._waiting = self._waiting, []
        return waiting + self._end_evaluation()

    def place(self, *, evaluates: bool) -> list[LoggedValue]:
        """Takes whether the next lines are known to be printed in an evaluation; returns the values of one before."""
        has_ended, self._evaluates = self._evaluates and not evaluates, evaluates
        return self._end_evaluation() if has_ended else []

    def parse(self, text: str, t: float, *, is_mixed: bool) -> list[LoggedValue]:
        """The values of one line or update of a bar. `is_mixed`: several ranks print without their rank."""
        if "% " in text and "/" in text:
            text = THIN_BAR.sub(r"%|| \1 [00:00<?, ?it/s]", text)
        if "%|" in text and (bar := TQDM.match(text)) is not None:
            # What a script prints while its bar is drawn follows on the same line.
            behind = text[bar.end() :]
            is_line = bool(behind.strip()) and "%|" not in behind
            return self._of_tqdm(bar, text, t) + (self.parse(behind, t, is_mixed=is_mixed) if is_line else [])
        if "%|" in text:
            return []
        if "\u2022" in text and (rich := RICH.match(text)) is not None:
            return self._of_rich(rich, t)
        if self._rich is not None and (more := RICH_MORE.match(text)) is not None:
            return self._of_rich_metrics(text[more.end() :], t, *self._rich)
        waiting, self._waiting = self._waiting, []
        if text.endswith("}") and (start := text.find("{")) >= 0 and _is_header(text[:start]):
            return waiting + self._of_dict(text[start:], t, split_between(text[:start]))
        if "/" in text and (keras := KERAS.match(text)) is not None:
            return waiting + self._of_keras(keras, text, t)
        return waiting + self._of_text(text, t, is_mixed)

    def _of_text(self, text: str, t: float, is_mixed: bool) -> list[LoggedValue]:
        if self._skips_next:
            self._skips_next = False
            return []
        if not self._box.is_empty and is_rule(text):
            return self._of_row(self._box.end(), t)
        if text.lstrip().startswith(("|", "│")) and self._box.take_row(text):
            return []
        if _DIGIT.search(text) is None or not self._table.is_empty or "  " in text or "|" in text:
            if self._table.take_header(text, self._in_evaluation):
                return []
            if (row := self._table.row_of(text)) is not None:
                return self._of_row(row, t)
            if _DIGIT.search(text) is None:
                return self._of_heading(text)
        if not (self._in_evaluation or self._evaluates or self._is_listed) and _BEGINNING.match(text) is None:
            lowered = text.lower()
            if not any(hint in lowered for hint in _HINTS):
                return []
        return self._of_message(without_header(text), t, is_mixed)

    def _of_heading(self, text: str) -> list[LoggedValue]:
        """Takes a line without numbers: it may begin an evaluation."""
        message, self._is_listed = without_header(text), False
        self._skips_next = message.endswith("best iteration is:")
        if len(message) <= 120 and HEADING.match(message) is not None:
            self._in_evaluation, self._evaluated_to = True, -1
        return []

    def _of_message(self, text: str, t: float, is_mixed: bool) -> list[LoggedValue]:
        self.progress.plan(text)
        if text.startswith("processed ") and " tokens with " in text:
            self._in_evaluation = True  # So the results of conlleval begin.
        if is_configuration(text):
            return []
        text, core, core_step = without_core(text)
        line = taken_apart(text)
        if core_step is not None:
            line = line._replace(position=line.position._replace(step=core_step))
        if (line.is_prose or line.has_remark) and _KEEPS.search(lowered := text.lower()) is not None:
            self._choose(lowered)
        if not line.fields:
            if self._in_evaluation and self._is_listed and line.position.is_global and line.position.total is None:
                self.progress.step_of(core or self.suffix, line.position)
                return []  # `global_step = 500` among results that are listed.
            self._is_listed = False
            return self._of_position(line, text)
        is_pair = len(line.fields) == 1 and line.fields[0].has_sign and line.position.is_none and not line.num_letters
        is_pair = is_pair and not text[:1].isalnum()  # A block is indented, or has a bar in front.
        self._is_listed = self._has_metrics(line) or (is_pair and self._is_listed and not line.is_prose)
        if not self._is_listed:
            return []
        self._is_listed = is_pair
        suffix = core or self.suffix
        in_evaluation = line.split == "valid" or (
            line.split != "train"
            and (self._is_evaluated(line) or (self._in_evaluation and not self._is_training(line)))
        )
        unnamed = unnamed_results([field.name for field in line.fields])
        valid = [field for field in line.fields if split_of(field.name) == "valid" or field.name in unnamed]
        trained = [field for field in line.fields if field not in valid]
        if in_evaluation:
            valid, trained = line.fields, []
        values: list[LoggedValue] = []
        if trained:
            values += self._of_training(line, trained, bool(valid), suffix, t, is_mixed)
        if valid:
            values += self._of_evaluation(line, valid, bool(trained), suffix, t)
        return values

    def _choose(self, text: str) -> None:
        """Takes the metric of a best model that is kept, if the line names one of those that were printed."""
        named = " ".join(_LETTERS.findall(text))
        metrics = {meaning_of_name(tag).name for tag in self._results}
        ranks = {name: choice_rank(name) for name in metrics if " ".join(_LETTERS.findall(name)) in named}
        chosen = [name for name, rank in ranks.items() if rank is not None]
        if len(chosen) == 1 and (choice_rank(self.chosen) or 99) > (ranks[chosen[0]] or 0):
            self.chosen = chosen[0]

    def _has_metrics(self, line: PrintedLine) -> bool:
        """Whether a line has metrics and little else."""
        fields, position = line.fields, line.position
        if line.is_prose or line.num_letters_behind > _LETTERS_BEHIND_MAX:
            return False
        if position.step is not None:
            return line.num_letters <= _LETTERS_WITH_STEP_MAX
        if position.epoch is not None:
            return line.num_letters <= _LETTERS_WITH_EPOCH_MAX
        if line.num_letters > _LETTERS_MAX:
            return False
        if any(_SETTINGS.search(field.name) for field in fields):
            return False
        if self._is_evaluated(line):
            return True
        splits = line.split or split_of(fields[0].name)
        if not self.progress.has_begun and self._in_evaluation:
            return any(choice_rank(field.name) is not None for field in fields)
        if not self.progress.has_begun:
            # A whole number is a setting, `train_loss_window: 500`, unless that name had others before.
            is_whole = fields[0].value.is_integer() and meaning_of_name(fields[0].name).name not in self._templates
            return bool(splits) and is_loss_or_score(fields[0].name) and not is_whole
        if splits == "valid":
            return True
        if self._in_evaluation:
            return any(is_known(field.name) for field in fields)
        return any(is_loss_or_score(field.name) or is_rate(field.name) for field in fields)

    def _is_evaluated(self, line: PrintedLine) -> bool:
        """Whether a line has results of the evaluation in which it was printed: it has no position, is like lines of
        the training, or has scores of the epoch that the training did not print. Others may sum up both."""
        names = {field.name for field in line.fields}
        if not self._evaluates or len({split_of(name) for name in names}) > 1:
            return False
        is_result = all(choice_rank(name) is not None and split_of(name) != "train" for name in names)
        is_new = line.position.step is None and not any("loss" in name or name in self._templates for name in names)
        return is_result and (is_new or line.position.is_none or line.head in self._trained)

    def _is_training(self, line: PrintedLine) -> bool:
        """Whether a line that names no split is one of training, below an evaluation."""
        if any(split_of(field.name) == "train" for field in line.fields):
            return True
        if line.position.is_none:
            return False
        if self._evaluated_to < 0 and line.position.step is None and line.position.epoch == self.progress.epoch:
            return False  # The line of the epoch above its heading was that of training.
        if not self._templates:
            return any("loss" in field.name for field in line.fields)
        return any(self._templates.get(meaning_of_name(field.name).name) == line.head for field in line.fields)

    def _of_position(self, line: PrintedLine, text: str) -> list[LoggedValue]:
        """Takes a line without metrics: an epoch, or the beginning of an evaluation."""
        if line.split == "valid" and len(text) <= 120 and (HEADING.match(text) or not line.position.is_none):
            self._in_evaluation = True
        elif line.position.epoch is not None and line.num_letters <= _HEADER_LETTERS_MAX:
            values = self._end_evaluation()
            if line.position.is_global and line.position.total:
                self.progress.advance(self.suffix, line.position)
            self.progress.enter(line.position.epoch, line.position.epochs)
            return values
        elif line.position.is_global and line.num_letters <= (_HEADER_LETTERS_MAX if line.position.total else 0):
            values = self._end_evaluation()
            self.progress.advance(self.suffix, line.position)  # `STEP: 5` above its values.
            return values
        return []

    def _of_training(
        self, line: PrintedLine, fields: list[PrintedField], has_validation: bool, suffix: str, t: float, is_mixed: bool
    ) -> list[LoggedValue]:
        """The values of training on a line."""
        position = line.position
        if not self._evaluates and len(self._trained) < _NAMES_MAX:
            self._trained.add(line.head)
        values = self._end_evaluation() if not position.is_none else []
        is_sum = has_validation and position.is_global and any(split_of(field.name) == "train" for field in fields)
        is_sum = is_sum and any(meaning_of_name(field.name).name == "loss" for field in fields)
        if is_sum:
            step = self.progress.step_of(suffix, position)
        else:
            step = self.progress.advance(suffix, position, is_mixed=is_mixed)
        is_mean = position.step is None and self.progress.step is not None and not self._is_listed
        return values + [
            LoggedValue(
                self._tag(field.name, line, is_sum, suffix),
                step,
                t,
                field.mean if is_mean and field.mean is not None else field.value,
                self.progress.epoch,
            )
            for field in fields
        ]

    def _tag(self, name: str, line: PrintedLine, is_sum: bool, suffix: str) -> str:
        """The tag of a name of training: the same for all lines of the first template that has it, another one for
        other lines."""
        plain = meaning_of_name(name).name
        if is_sum:
            return f"train/{name}{suffix}"
        if name != plain and any(field.name == plain for field in line.fields):
            return f"train/{name}{suffix}"
        template = self._templates.get(plain)
        if template is None and len(self._templates) < _NAMES_MAX:
            self._templates[plain] = template = line.head
        if template == line.head or template is None:
            return name + suffix
        if name != plain:
            return f"train/{name}{suffix}"
        prefix = "_".join(_SPLIT_WORDS.sub("", line.head).split()) or (
            "epoch" if line.position.epoch is not None else ""
        )
        return f"{prefix}_{name}{suffix}" if prefix else name + suffix

    def _of_evaluation(
        self, line: PrintedLine, fields: list[PrintedField], has_training: bool, suffix: str, t: float
    ) -> list[LoggedValue]:
        """The values of an evaluation on a line."""
        position = line.position
        if not has_training:
            self.progress.enter_evaluated(position.epoch, position.epochs)
            self._in_evaluation = self._in_evaluation or line.split == "valid" or not self._evaluates
        step = self.progress.step if has_training else self.progress.step_of(suffix, position)
        suffix = "" if suffix == "/rank0" else suffix
        tests, has_name = _TEST_HEAD.match(line.head) is not None, any(_is_validation(field.name) for field in fields)
        self._validates = self._validates or has_name or _VALIDATION_HEAD.match(line.head) is not None
        prefix = "test_" if tests and self._validates else "valid/"
        is_of_part = bool(line.part) and not split_between(line.part)
        if is_of_part and all(f"valid/{field.name}" in self._results for field in fields):
            prefix += f"{line.part}/"
        values = [
            LoggedValue(
                self._tag_of_evaluation(field.name, line, prefix) + suffix,
                step,
                t,
                field.value if field.mean is None else field.mean,
                self.progress.epoch,
            )
            for field in fields
        ]
        if line.has_remark or step is not None:
            # An evaluation is not printed twice at one step, but its results may be.
            values = [value for value in values if self._results.get(value.tag) != value._replace(t=0.0)]
        if len(self._results) < _NAMES_MAX:
            self._results |= {value.tag: value._replace(t=0.0) for value in values}
        is_part = not has_training and position.total is not None and step != position.step
        if not is_part and not self._evaluated:
            return values
        ended = []
        if is_part and position.step is not None:
            ended = self._end_evaluation() if position.step < self._evaluated_to else []
            self._in_evaluation, self._evaluated_to = True, position.step
        self._evaluated |= {value.tag: value for value in values}
        return ended

    def _tag_of_evaluation(self, name: str, line: PrintedLine, prefix: str) -> str:
        """The tag of a name of an evaluation; another one for the mean of the weights where the weights are evaluated,
        too: `Test: EMA loss 0.5`."""
        if _MEAN_HEAD.search(line.head) is None:
            if len(self._of_weights) < _NAMES_MAX:
                self._of_weights.add(name)
        elif name in self._of_weights:
            return f"{prefix}ema_{name}"
        return name if split_of(name) == "valid" else f"{prefix}{name}"

    def _end_evaluation(self) -> list[LoggedValue]:
        """Ends an evaluation; returns its values that were not returned before."""
        values, self._evaluated = [*self._evaluated.values()], {}
        self._in_evaluation, self._evaluated_to = False, 0
        return values

    def _of_row(self, row: Row | None, t: float, position: PrintedPosition | None = None) -> list[LoggedValue]:
        """The values of a row of a table, or of a box. `position` is that of the bar beside it."""
        if row is None:
            return []
        values = self._end_evaluation() if not row.is_evaluation else []
        if position is None:
            position = PrintedPosition(row.step, None, row.epoch, row.epochs, is_global=True)
        else:
            position = position._replace(epoch=row.epoch, epochs=row.epochs)
        step = self.progress.step_of("", position) if row.is_evaluation else self.progress.advance("", position)
        return values + [
            LoggedValue(
                f"valid/{name}" if row.is_evaluation and not split_of(name) else name,
                step, t, value, self.progress.epoch,
            )
            for name, value in row.values
        ]  # fmt: skip

    def _of_tqdm(self, bar: re.Match[str], text: str, t: float) -> list[LoggedValue]:
        label, position, total, postfix = bar.group(1) or "", int(bar.group(2)), int(bar.group(3)), bar.group(4) or ""
        if not label and not postfix:
            return self._of_main_bar(position, total)
        if self._table.take_header(text, self._in_evaluation):
            return []
        if (row := self._table.row_of(label)) is not None:
            return self._of_row(row, t, PrintedPosition(position, total, None, None, is_global=False))
        pairs = [(name.strip(), number_of(value)) for name, value in TQDM_PAIR.findall(postfix)]
        described = [field for field in taken_apart(label).fields if is_known(field.name)]
        pairs += [(field.name, field.value) for field in described]
        epoch = BAR_EPOCH.search(label)
        if epoch is not None:
            self.progress.enter(float(epoch.group(1)), int(epoch.group(2)) if epoch.group(2) else None)
        pairs = [(name, value) for name, value in pairs if form(name) != "v_num" and not _is_context(name)]
        split = BAR_SPLIT.search(label)
        is_validation = split is not None and split.group(1).lower() != "train"
        if not pairs or _SANITY in label.lower():
            return []
        if is_validation:
            tags = [(name if split_of(form(name)) == "valid" else f"valid/{name}") + self.suffix for name, _ in pairs]
            shown = zip(tags, pairs, strict=True)
            self._in_evaluation = True
            at = self.progress.step, t
            self._evaluated |= {tag: LoggedValue(tag, *at, value, self.progress.epoch) for tag, (_, value) in shown}
            return []
        is_after_evaluation = self._in_evaluation
        values = self._end_evaluation()
        kind = f"bar {re.sub(r'[0-9]+', '', label[: described[0].start] if described else label)}"
        place = PrintedPosition(position, total, None, None, is_global=False)
        step = self.progress.advance(kind, place, is_after_evaluation=is_after_evaluation)
        return values + self._shown_on_bar(pairs, step, t)

    def _shown_on_bar(self, pairs: list[tuple[str, float]], step: int | None, t: float) -> list[LoggedValue]:
        return [
            LoggedValue(tag, step, t, value, self.progress.epoch)
            for name, value in pairs
            if self._shown.is_new(tag := name + self.suffix, step, value, is_validation=split_of(form(name)) == "valid")
        ]

    def _of_rich(self, bar: re.Match[str], t: float) -> list[LoggedValue]:
        self._rich = None
        if bar.group(1) is None:
            return []  # Its metrics are printed with the next training step.
        self.progress.enter(float(bar.group(1)))
        position, total = int(bar.group(3)), bar.group(4)
        epoch = int(bar.group(1))
        step = epoch * int(total) + position if total.isdecimal() else None
        if step is None:
            step = self.progress.advance("rich", PrintedPosition(position, None, None, None, is_global=False)) or 0
        self.progress.step = step
        self._rich = step, float(epoch)
        return self._of_rich_metrics(bar.group(5), t, *self._rich)

    def _of_rich_metrics(self, text: str, t: float, step: int, epoch: float) -> list[LoggedValue]:
        pairs = [(name, number_of(number)) for name, number in RICH_PAIR.findall(text) if form(name) != "v_num"]
        if step == 0:
            # Before the first step a score of validation is that of the sanity check.
            pairs = [(name, value) for name, value in pairs if split_of(form(name)) != "valid"]
        return [value._replace(epoch=epoch) for value in self._shown_on_bar(pairs, step, t)]

    def _of_main_bar(self, position: int, total: int) -> list[LoggedValue]:
        if self._main_bar is None:
            self._main_bar = total
        if total != self._main_bar:
            return []
        self._before_bar += total if position < self._bar_at else 0
        self._bar_at = position
        self.progress.step = max(self._before_bar + position, self.progress.step or 0)
        waiting, self._waiting = self._waiting, []
        return [value._replace(step=position) for value in waiting]

    def _of_dict(self, text: str, t: float, split: str) -> list[LoggedValue]:
        if (named := _DICT_SPLIT.search(text)) is not None:
            split = split_between(named[3])
        pairs = [(match.group(2), number_of(match.group(4))) for match in _DICT_PAIR.finditer(text)]
        names = [name for name, _ in pairs]
        if (start := text.find('"results": {')) > 0:
            return self._of_dict(text[start + 11 : text.find("}", start) + 1], t, "results")  # As StyleGAN prints them.
        if split != "results" and not any(_is_context(name) or is_loss_or_score(name) for name in names):
            return []
        by_form = {form(name): value for name, value in pairs}
        step = next((step_number(by_form[name]) for name in STEP_NAMES if name in by_form), None)
        epoch = next((by_form[name] for name in EPOCH_NAMES if name in by_form), None)
        self.progress.enter(epoch)
        if step is not None:
            self.progress.step = step
        unnamed = unnamed_results([form(name) for name in names if not _is_context(name)])
        if split in ("valid", "test", "results"):
            unnamed = {form(name) for name in names if not split_of(form(name))}
        # The bar of an evaluation has moved on to its end before the values are printed.
        has_bar = step is None and self._main_bar is not None and any(split_of(form(name)) != "valid" for name in names)
        values = [
            LoggedValue(
                f"valid/{name}" if form(name) in unnamed else self._dict_tag(name, names),
                self.progress.step,
                t,
                value,
                self.progress.epoch,
            )
            for name, value in pairs
            if not _is_context(name)
        ]
        if has_bar and self._main_bar is not None:
            self.progress.plan_steps(self._main_bar)
            self._waiting = values
            return []
        return values

    def _dict_tag(self, name: str, names: list[str]) -> str:
        """The tag of a name in a dictionary: `train_loss` is another metric than the `loss` of other dictionaries."""
        plain = meaning_of_name(form(name)).name
        if split_of(form(name)) != "train":
            self._templates.setdefault(f"dict {plain}", "")
        elif f"dict {plain}" in self._templates and plain not in map(form, names):
            return f"train/{name}{self.suffix}"
        return name + self.suffix

    def _of_keras(self, match: re.Match[str], text: str, t: float) -> list[LoggedValue]:
        pairs = [(name, number_of(value)) for name, value in KERAS_PAIR.findall(text, match.end() - 3)]
        pairs = [(name, value) for name, value in pairs if name != "ETA"]
        prefix = "test_"
        if not pairs and "| Tot: " in text:
            pairs, prefix = [(field.name, field.value) for field in taken_apart(text).fields], "valid/"
        if not pairs:
            return []
        position, total = int(match.group(1)), int(match.group(2)) if match.group(2).isdigit() else None
        if self._keras.epoch != self.progress.epoch:
            self._keras = ShownStates(self.progress.epoch)
        if self._keras.add(position, total):
            return []
        begins_again = self._keras.evaluates and self.progress.reported == NOTHING_REPORTED
        if self._evaluates or (begins_again and not any(split_of(form(name)) == "valid" for name, _ in pairs)):
            # Each state has the means so far, and those of the last one are what `evaluate` returns.
            tags = [f"{prefix}{name}{self.suffix}" for name, _ in pairs]
            for tag, (_, value) in zip(tags, pairs, strict=True):
                self._evaluated[tag] = LoggedValue(tag, self.progress.step, t, value, self.progress.epoch)
            return []
        step = self.progress.advance("keras", PrintedPosition(position, total, None, None, is_global=False))
        return self._end_evaluation() + self._shown_on_bar(pairs, step, t)


def without_core(text: str) -> tuple[str, str, int | None]:
    """A line without the core that torch_xla's examples name, the suffix of its tags, and its step if it follows."""
    match = _XLA_PREFIX.match(text)
    if match is not None:
        return text[match.end() :], f"/core{int(match.group(2) or match.group(1))}", int(match.group(3))
    device = _XLA_DEVICE.search(text) if ":" in text else None
    if device is not None:
        core = int(device.group(2) or device.group(1))
        return text[: device.start()] + text[device.end() :], f"/core{core}", None
    return text, "", None


def _is_header(text: str) -> bool:
    """Whether what is before a dictionary is at most the header of a logger."""
    return _LABEL.fullmatch(without_header(text).strip()) is not None or text.endswith(" >> ")


def _is_validation(name: str) -> bool:
    return split_of(name) == "valid" and not is_test(name)


def _is_context(name: str) -> bool:
    return form(name) in STEP_NAMES or form(name) in EPOCH_NAMES
