"""One printed line taken apart: its position, its names with numbers, and the words that say what they are of. Pure.

Console output is untrusted input: every repetition in these expressions is bounded, and so is the length of a line, so
the time to take a line apart is linear in its length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tputui.logs.rows import EPOCH_NAMES, STEP_NAMES, form
from tputui.logs.tags import TagMeaning, choice_rank, meaning_of

NUMBER = (
    r"[-+]?(?:(?:[1-9]\d{0,2}(?:,\d{3}){1,6}|\d{1,20})(?:\.\d{0,20})?(?:e[-+]?\d{1,4})?|\.\d{1,20}(?:e[-+]?\d{1,4})?"
    r"|nan|inf(?:inity)?)"
)
_UNIT = r"\s?(?:[kmgt]i?b|[mun]?s|secs?|seconds|m|min|minutes?|h|hours|days)(?![\w/])"
END = rf"(?![\w:/]|\.\w|-\d|,\d|{_UNIT})"
"""After a number: not a time, a version, a path, a date, a fraction, or a number of seconds or bytes."""
_MEAN = rf"\s{{0,3}}\(\s{{0,8}}(?!\+)({NUMBER})%?\s?\)"
"""The mean behind a value of a meter: `6.91 (7.07)`."""
_WORD = r"[a-z_][^\s:=|,;\[\]{}<>()\"*]{0,60}"
_FIELD = re.compile(
    rf"(?<![^\s|,;\[\]{{}}<>(*'\"])({_WORD}(?: {_WORD}){{0,5}}?(?:\s?\((?!\s?\d)[^():=]{{0,30}}(?:\([^():=]{{1,30}}\))?"
    r"[^():=]{0,30}\)|\(\d[^():=]{0,40}[a-z][^():=]{0,20}\))?)"
    rf"(?:(['\"]?\s{{0,4}}[:=]\s{{0,12}}['\"]?)|\s{{1,12}})"
    rf"(?:(?:\d{{1,18}}\s?/\s?\d{{1,18}}\s)?\(\s?({NUMBER})%\s?\)|"
    rf"({NUMBER})(?(2)|(?!(?<=nan|inf) [a-z]{{1,20}}\s?[:=]))((?-i:[kKMG])(?![\w/]))?"
    rf"\s?(?:%|(?=\D)|$){END}(?:{_MEAN})?)",
    re.IGNORECASE,
)
"""A whole phrase, a sign or blanks, and a number; or a share behind a fraction: `Accuracy: 96/100 (96%)`."""
_THOUSANDS = {"K": 1e3, "M": 1e6, "G": 1e9}
_KNOWN_WORDS = (
    r"loss(?:es)?|lr|learning|learn|acc(?:uracy)?(?:@?\d)?|top-?[15]|ppl|perplexity|bleu|rouge|f1|auc|mae|mse|rmse|l1|l2|"
    r"logloss|cost|m?iou|dice|pearson|spearman|m?ap(?:\d{2}(?:-\d\d)?)?|psnr|ssim|fid|[cw]er|bpb|bpc|bpd|elbo|kl|entropy|xent|nll|gnorm|norm|"
    r"score|err(?:or)?|prec(?:ision)?|recall|hits?|ndcg|mrr|rewards?|returns?|mfu|tps|wps|ups|sps|fps|ips|rate|throughput|per_s|scale|"
    r"temperature|momentum|wd|time|data|metric|episode|[dg]"
)
_KNOWN = re.compile(
    rf"(?:.{{0,60}}[^a-z])?(?:{_KNOWN_WORDS})(?:[^a-z].{{0,60}})?|.{{0,60}}(?:loss|acc|/s(?:ec)?)", re.IGNORECASE
)
_LOSS_OR_SCORE = re.compile(
    r"(?!.{0,60}[_ ](?:weight|scale|coeff?|factor|window|threshold|target|ratio|type|fn|min|max)s?$)"
    r".{0,60}(?:loss|(?<![a-z])(?:acc|accuracy|ppl|perplexity|f1|auc)(?![a-z]))",
    re.IGNORECASE,
)
_RATE = re.compile(r".*(?:/s(?:ec)?|per_sec(?:ond)?|per_s|[twsufi]ps|throughput)(?:[^a-z].*)?", re.IGNORECASE)
_SPEED_UNIT = re.compile(
    rf"\s?([a-z]{{1,20}}/s(?:ec(?:ond)?)?)(?![\w=:])(?:\s{{1,3}}{NUMBER} [a-z]{{1,20}}/s(?:ec(?:ond)?)?(?![\w=:]))*",
    re.IGNORECASE,
)
"""Behind a speed: its unit, and the same speed in others: `Speed: 812.3 samples/sec 21000.1 tokens/sec`."""
_NOT_METRICS = {
    *STEP_NAMES, *EPOCH_NAMES, "pid", "port", "rank", "local_rank", "world_size", "seed", "gpu", "device", "v_num",
    "version", "line", "exit_code", "code", "id", "node", "host", "thread", "core", "worker", "eta", "date", "warning",
    "error_code", "errno", "status", "epochs", "steps", "it", "batch", "http", "https", "localhost", "job",
    "num_epochs", "max_steps", "total_steps", "max_epochs", "batch_size", "num_examples", "num_timesteps", "episode",
    "round", "took", "run", "trial", "fold",
}  # fmt: skip
"""Names in the form of `rows.form` whose numbers are not metrics."""
_DEVICES = re.compile(
    r"(?:on |device[=:]\s?)?\b(?:xla|cuda|cpu|tpu|mps|gpu|npu|hpu|xpu|hip|meta):\d{1,6}", re.IGNORECASE
)
_NO_FIGURE = re.compile(
    r"(?:^|_)(?:baseline|previous|num_examples|num_samples|batch_size|size|seed|loaded|number_of_\w{1,20}_(?:images|samples)|needed)(?:_|$)|(?:^|_)(?:on|to|at|in|of|with|for|from|by|is|and|the|now|over|fold|above|below|than|after|until)$"
)
"""In names whose numbers are not metrics: those of settings, and phrases that are no names."""
_FILES = re.compile(r".{0,99}\.(?:py|cc?|cpp|h|cu|rs|go|js|so|txt|json|ya?ml|toml|log|sh|pt|ckpt|html?)", re.IGNORECASE)

_GROUPED = r"[1-9]\d{0,2}(?:[,_]\d{3}){1,5}"
_COUNT = rf"{_GROUPED}|\d{{1,18}}"
_SHORT = r"\d{1,6}(?:\.\d{1,3})?(?:k|(?-i:M))(?!\w)"
"""`12k`, `1.5M`."""
_PERCENT = r"\s{0,2}(?:\(\s{0,3}\d{1,3}(?:\.\d{1,3})?%\s?\))?"
_EPOCH = re.compile(
    r"(?<![\w./-])(?<!per )(?<!total )(?:epoch|ep\.|ep(?=\s{0,4}\d{1,9}/))"
    r"\s{0,2}(\(\w{1,12}\)\s{0,3})?[:=#]?\s{0,4}[\[(]?\s{0,4}(\d{1,9}(?:\.\d{1,9})?)"
    r"(?:\s?(?:/|of)\s?(\d{1,9}))?\s?[\])]?(?!\w|\.\d|:\d)|(?<![\w./-])(\d{1,9})epoch(?![a-z])",
    re.IGNORECASE,
)
_STEP = re.compile(
    r"(?<![\w./-])(?<!per )(global[ _-]?step|train[ _-]?step|num_timesteps|step|iteration|iters?|it|batch(?:[ _]id)?|"
    rf"update|num_updates|up\.|episode|round|cycle|generation|i(?==\d))(?:\(\w{{1,12}}\))?\s{{0,2}}[:=#]?\s{{0,8}}[\[(]?\s{{0,6}}({_SHORT}|{_COUNT})"
    rf"(?:\s?(?:/|of)\s{{0,6}}({_SHORT}|{_COUNT}))?(?!\w|\.\d|,\d){_PERCENT}\s?[\])]?",
    re.IGNORECASE,
)
_GLOBAL = re.compile(r"step|iteration|update|up\.|timesteps", re.IGNORECASE)
"""In the word for a position that counts the steps of training, also on a line of an evaluation."""
_BATCHES_TO = re.compile(r"(?<![\w.])\d{1,18}-(\d{1,18})(?=batch)")
"""`51-100batch`"""
_STEPS_FIRST = re.compile(r"\s{0,4}(steps)\s?[:=]\s{0,4}(\d{1,18})()(?=[\s,|])", re.IGNORECASE)
_TWO_BRACKETS = re.compile(
    r"\[\s{0,8}(\d{1,9})(?:\s?/\s?(\d{1,9}))?\s?\]\s{0,4}\[\s{0,8}(\d{1,18})\s?/\s{0,8}(\d{1,18})\s?\]"
)
_EPOCH_AND_STEP = re.compile(r"\s{0,4}\[\s{0,8}(\d{1,9}),\s{1,8}(\d{1,18})\]\s{1,4}(?=\w{0,20}loss)", re.IGNORECASE)
"""As in PyTorch's tutorials: `[2,  2000] loss: 1.234`."""
_SPLIT_AND_EPOCH = re.compile(r"(?<=train: )\s{0,4}(\d{1,9})\s{1,4}(?=\[\s{0,8}\d{1,18}\s?/)", re.IGNORECASE)
_BRACKET = re.compile(rf"[\[(]\s{{0,8}}({_COUNT})\s?/\s{{0,8}}({_COUNT}){_PERCENT}\s?[\])]")
_FRACTION = re.compile(r"(?<![\w./:=-])(\d{1,18})\s?/\s{0,8}(\d{1,18})(?![\w./])(?: batches)?")
_SHARE = re.compile(r"([a-z][\w@.-]{0,40})\s?[:=]\s{0,4}\d{1,3}(?:\.\d{1,9})?\s?%\s?$", re.IGNORECASE)
"""`Acc: 25.0% ` before `(8/32)`, which is no position."""
_LEADING = re.compile(r"\s{0,4}(?:\[(\d{1,12})\]|(\d{1,12}):)\s{1,4}(?=[a-z])", re.IGNORECASE)

_HEADER = re.compile(
    r"(?:.{0,110}?\b(?:INFO|DEBUG|WARNING|SUCCESS|NOTICE)\b(?:[|:][^\[\]\s]{1,60}\]:? )?[\s:|\]>-]{0,12}"
    r"(?:[\w.]{1,60}:[\w<>.]{1,60}:\d{1,6} - |"
    r"tensorflow:|root:|__main__:|__\w{1,20}__ - |\w{1,40}(?:\.\w{1,40}){1,6} - )?"
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9}\s{1,8}\d{1,9} [\w.-]{1,60}:\d{1,6}\] ?|"
    r"\s?\[[^\]]{0,40}\d\d:\d\d:\d\d[^\]]{0,60}\]:? ?|[a-z_]\w{0,40}(?:\.\w{1,40}){1,4} - )"
)
"""What loggers write before a message: time, level, name and place."""
_SPLITS = re.compile(
    r"(?<![a-z_.])(?:(train(?:ing|_inner)?)|(val(?:id(?:ation|ate|ating)?)?|eval(?:uat(?:e|ion|ing))?|test(?:ing)?|dev|(?-i:CV)))"
    r"(?![a-z_./=])",
    re.IGNORECASE,
)
HEADING = re.compile(
    r"[\s*=>#|-]{0,60}(?:(?:running|starting|start|begin) )?(?:valid(?:at(?:ion|ing|e))?|val|eval(?:uat(?:ion|ing|e))?|"
    r"test(?:ing)?|inference|completed eval)\b",
    re.IGNORECASE,
)
"""The beginning of a line that begins an evaluation."""
_SPLIT_ALONE = re.compile(rf" (?:train|val|valid|validation|test)(?: loss)? {NUMBER}", re.IGNORECASE)
"""What follows the step on lines like `10: val 4.91`."""
_STARRED = re.compile(r"\s{0,4}\*\s")
_TEXT_VALUE = re.compile(r"=\s?(?!nan|inf)(?:['\"/A-Za-z\[(]|,)", re.IGNORECASE)
"""Texts as values, of which a line of metrics has at most one."""
_CONFIGURATION = re.compile(
    r"\s{0,4}(?:Namespace\(|Args\b|(?:Hyper)?parameters\b|Config\b|optimizer\b|Resum|Load|Restor)|"
    r"\s{0,40}\"[^\"]{1,100}\"\s?: ",
    re.IGNORECASE,
)
"""How settings begin, and parts of JSON over several lines, which are settings or repeat results."""
_REPEATED = re.compile(
    rf"(?<![a-z])(?:best|highest|lowest)(?:(?P<pair>[\w@.-]{{0,40}}\s?[:=]\s?|_[\w@.-]{{1,40}}\s)"
    rf"|(?: [a-z][\w@.-]{{0,20}}){{0,3}}\s?[:=]?\s?){NUMBER}%?(?: \(?(?:at|in|@) (?:epoch|step) \d{{1,9}}\b)?\)?|"
    r"(?<![a-z])(?:better|best|target acc\w*|highest|lowest|improved?|(?:de|in)creased|did not|"
    r"(?:finished|done|ended|saved) with|"
    r"(?:sav(?:ed|ing)|load(?:ed|ing)|resum(?:ed|ing))\b.{0,30}\b(?:model|checkpoints?|weights|to|from))\b[^,;|]{0,200}",
    re.IGNORECASE,
)
"""What repeats values of lines before: the best so far, as a pair or in a sentence, and what is said of a model that is
saved. Behind values of now it ends where they do: `acc 81.2% (best acc 84.0% at epoch 3)`."""
_OF_EXAMPLES = re.compile(r"(?:test )?(accuracy|loss)[a-z ]{0,30} on the \d{1,9} (test|val)\w{0,7} \w{1,20}", re.I)
"""`Accuracy of the network on the 10000 test images`."""
_SIGN = re.compile(r"\s{2,80}(?=[:=]\s)|(?<=\s[:=])\s{2,80}")
"""Blanks that align signs below each other."""
_DURATION = re.compile(r"(?<![\w.])(?:\d{1,6}(?:ms|[smhd])){1,4}(?!\w)", re.IGNORECASE)
_NEXT_NUMBER = re.compile(r"\s{1,8}\d{1,20}\.\d")
_SAID = re.compile(r"(?: so far)? (?:is|was)$", re.IGNORECASE)
"""What a sentence has between a name and its number."""
_MARK = re.compile(r"^\s{0,4}\W{0,4}\[[^\[\]]{0,20}\bbest\b[^\[\]]{0,20}\]", re.IGNORECASE)
"""A mark before the values of now that are the best so far: `[NEW BEST] Epoch 3: val_loss=0.41`."""
_NUMBERS_FIRST = re.compile(rf"\s{{0,4}}(\d{{1,12}}): ({NUMBER}), ({NUMBER}) avg(?: loss)?, ({NUMBER}) rate,.{{0,200}}")
"""Darknet's line of a step, in which names follow their numbers."""
_OF_COCO = re.compile(r"Average Precision .{0,9} IoU=0\.(\d\d)(:0\.95)? {0,9}\| area= {1,4}all \|[^\]]{0,20}\] = ")
"""Of all sizes: the mean over thresholds, and what it is at one of them."""
_PART = re.compile(r"\s{0,40}([\w./-]{1,40}):\s{1,4}")
"""What results on a line are of, such as a class: `PERSON: precision: 0.9`."""
_VALID_WORDS = ("val", "valid", "validation")
_GROUP = re.compile(r"(\w{1,40})\[[^\[\]]{0,200}$")
_SPACES = re.compile(r"[^a-z]+", re.IGNORECASE)


class PrintedField(NamedTuple):
    """A name and a number of a line."""

    name: str
    """In lower case, with `_` for blanks."""
    value: float
    mean: float | None
    """Of a meter: the mean behind the value."""
    start: int
    end: int
    has_sign: bool
    """Whether a sign separates name and number."""


class PrintedPosition(NamedTuple):
    """What a line says about the time of its values."""

    step: int | None
    total: int | None
    """Number of steps after which `step` begins again, or at which the run ends."""
    epoch: float | None
    epochs: int | None
    """Number of epochs of the run."""
    is_global: bool
    """Whether the step is called one, or an iteration or update."""

    @property
    def is_none(self) -> bool:
        """Whether the line has neither step nor epoch."""
        return self.step is None and self.epoch is None


class PrintedLine(NamedTuple):
    """A line taken apart."""

    position: PrintedPosition
    fields: list[PrintedField]
    split: str
    """`train` or `valid`, if a word outside of the names says so."""
    head: str
    """The letters before the first name: what lines of one template have in common."""
    num_letters: int
    """Letters that are part of neither names nor positions."""
    num_letters_behind: int
    """Those of them behind the last number."""
    part: str
    """What its values are of, if the line begins with it: a class, a data set."""
    is_prose: bool
    """Whether it reports about values of lines before ..."""
    has_remark: bool
    """... or about its own values, behind them, which a line before may have had, too."""


def number_of(text: str) -> float:
    """The value of text that `NUMBER` matches."""
    return float(text.replace(",", ""))


def is_known(name: str) -> bool:
    """Whether a name is one that training scripts print: loss, accuracy, learning rate, ..."""
    return _KNOWN.fullmatch(name) is not None


def is_loss_or_score(name: str) -> bool:
    """Whether a name is certainly that of a metric, on a line without step or epoch."""
    return _LOSS_OR_SCORE.match(name) is not None


def is_rate(name: str) -> bool:
    """Whether a name is that of a throughput."""
    return _RATE.fullmatch(name) is not None


_EXPONENTIALS = {"perplexity", "ppl"}
"""Names of what is computed of a loss of the same line."""


@lru_cache(maxsize=4096)
def meaning_of_name(name: str) -> TagMeaning:
    """What a printed name means, as a tag."""
    return meaning_of(name)


def unnamed_results(names: Sequence[str]) -> set[str]:
    """Those of the names that name no split and are results of the validation that all others, and the first, name:
    `val loss 0.41 acc 0.86`. The perplexity is one also before the only loss: `perplexity: 12.2 eval_loss: 2.5`."""
    splits = {name: split_of(name) for name in names}
    named = {meaning_of_name(name).name for name, split in splits.items() if split}
    if not names or "train" in splits.values() or not named.isdisjoint(splits):
        return set()
    if splits[names[0]] != "valid":
        return {name for name in _EXPONENTIALS & splits.keys() if "loss" in named}
    return {name for name, split in splits.items() if not split and choice_rank(name) is not None}


@lru_cache(maxsize=4096)
def split_of(name: str) -> str:
    """`train` or `valid` if a name says so; else empty."""
    meaning = meaning_of_name(name)
    return meaning.split if meaning.split == "valid" or meaning.name != name else ""


def without_header(text: str) -> str:
    """A line without what a logger writes before its message."""
    header = _HEADER.match(text)
    return text[header.end() :] if header is not None else text


def is_configuration(text: str) -> bool:
    """Whether a line has settings rather than metrics."""
    if _CONFIGURATION.match(text) is not None:
        return True
    return "=" in text and len(_TEXT_VALUE.findall(_DEVICES.sub("", text))) > 1


def taken_apart(text: str) -> PrintedLine:
    """A line without the header of its logger, taken apart."""
    text = _NUMBERS_FIRST.sub(r"step \1: loss: \2, avg_loss: \3, lr: \4", text) if " rate, " in text else text
    text = _SIGN.sub(" ", _OF_EXAMPLES.sub(r"\2 \1", _DEVICES.sub(" ", text)))
    text, num_marks = _MARK.subn("", text)
    text = _OF_COCO.sub(lambda match: f"AP{'' if match[2] else match[1]}: ", text) if "IoU=" in text else text
    repeated = next((match for match in _REPEATED.finditer(text) if match["pair"] is None), None)
    text = _REPEATED.sub(lambda match: ";" * len(match[0]), text)
    position, rest = _position(text)
    leading = _LEADING.match(text) if position.is_none else None
    fields = _fields(rest, leading is not None or not position.is_none)
    is_prose = repeated is not None and (not fields or repeated.start() < fields[0].start)
    if leading is not None and fields and (fields[0].has_sign or _SPLIT_ALONE.fullmatch(text, leading.end() - 1)):
        position = PrintedPosition(int(leading[1] or leading[2]), None, None, None, is_global=True)
        rest = f"{' ' * (leading.end() - 1)};{rest[leading.end() :]}"
    outside = list(rest)
    for field in fields:
        outside[field.start : field.end] = ";" * (field.end - field.start)
    words = "".join(outside)
    split = _SPLITS.search(words, 0, fields[0].start if fields else len(words))
    named = "" if split is None else "train" if split[1] else "valid"
    if fields and "train" in (sections := {split_between(between) for between in words[: fields[-1].start].split(";")}):
        named = "train" if len(sections - {""}) > 1 else named
    if not named and _STARRED.match(text) is not None and "/" not in text[:8]:
        named = "valid"
    end = fields[-1].end if fields else 0
    num_behind = sum(map(str.isalpha, words[end:]))
    head = _SPACES.sub(" ", _DURATION.sub("", rest[: fields[0].start] if fields else rest)).strip().lower()
    has_remark = (repeated is not None and not is_prose) or num_marks > 0
    num_letters = sum(map(str.isalpha, _SPLITS.sub("", words)))
    part = _PART.fullmatch(text, 0, fields[0].start) if fields and position.is_none else None
    of_part = part[1].lower() if part is not None else ""
    return PrintedLine(position, fields, named, head[:60], num_letters, num_behind, of_part, is_prose, has_remark)


def _count_of(text: str) -> int:
    """The number of steps that `_SHORT` or `_COUNT` matches."""
    unit = {"k": 1e3, "m": 1e6}.get(text[-1].lower())
    return round(float(text[:-1]) * unit) if unit is not None else int(text.replace(",", "").replace("_", ""))


def _position(text: str) -> tuple[PrintedPosition, str]:
    """The position on a line, and the line with a `;` in place of it."""
    cuts: list[tuple[int, int]] = []
    step = total = epochs = None
    epoch: float | None = None
    is_global = False
    if (both := _EPOCH_AND_STEP.match(text)) is not None:
        return PrintedPosition(int(both[2]), None, float(both[1]), None, False), _cut(text, [both.span()])
    if (two := _TWO_BRACKETS.search(text)) is not None:
        epoch, epochs = float(two[1]), int(two[2]) if two[2] else None
        step, total = int(two[3]), int(two[4])
        cuts.append(two.span())
    elif (named := _EPOCH.search(text)) is not None:
        epoch, epochs = float(named[2] or named[4]), int(named[3]) if named[3] else None
        cuts.append((named.end(1) if named[1] else named.start(), named.end()))
    elif (leading := _SPLIT_AND_EPOCH.search(text)) is not None:
        epoch = float(leading[1])
        cuts.append(leading.span())
    text = _BATCHES_TO.sub(r"batch \1 ;", text) if epoch is not None and "batch" in text else text
    counted = _STEPS_FIRST.match(text) or _STEP.search(text)
    if counted is not None and (step is None or "update" in counted[1].lower()):
        step, total = _count_of(counted[2]), _count_of(counted[3]) if counted[3] else None
        is_global = _GLOBAL.search(counted[1]) is not None
        cuts.append(counted.span())
    if step is None:
        place = cuts[0][1] - 1 if cuts else 0
        found = _BRACKET.search(text, max(0, place - 1))
        if found is None and cuts:
            found = _FRACTION.search(text, place + 1, place + 60)
        if found is not None and found[0][0] != "[":
            share = _SHARE.search(text, max(0, found.start() - 60), found.start())
            name = form(share[1]) if share is not None else text[place : found.start()]
            found = None if is_loss_or_score(name) else found
        if found is not None and (cuts or sum(map(str.isalpha, text[: found.start()])) <= 20):
            step, total = _count_of(found[1]), _count_of(found[2])
            cuts.append(found.span())
    return PrintedPosition(step, total, epoch, epochs, is_global), _cut(text, cuts)


def _cut(text: str, cuts: list[tuple[int, int]]) -> str:
    for start, end in cuts:
        text = f"{text[:start]}{';' * (end - start)}{text[end:]}"
    return text


def _fields(text: str, has_position: bool) -> list[PrintedField]:
    fields: list[PrintedField] = []
    outer: list[str] = []
    place = 0
    while (match := _FIELD.search(text, place)) is not None:
        field = _field_of(match, has_position, fields[-1].name if fields else "")
        section = split_between(text[fields[-1].end if fields else 0 : match.start()]) or (outer[-1] if outer else "")
        if field is not None and (field := _told_apart(field, fields, text, section)) is not None:
            place = match.end()
            if field.name in ("speed", "throughput") and (unit := _SPEED_UNIT.match(text, place)) is not None:
                field, place = field._replace(name=unit[1].lower(), end=unit.end()), unit.end()
            fields.append(field)
            outer.append(section)
            continue
        # A phrase that is no name may end with one: `number of nan iterations: 0`.
        place = match.end() if field is not None or match[2] else match.start() + len(match[1].split(" ", 1)[0])
    if len({*outer} - {""}) > 1:
        # `train: loss 0.5 acc 0.8 | val: loss 0.6 acc 0.7`
        return [
            field
            if section in ("", "train") or split_of(field.name)
            else field._replace(name=f"{section}/{field.name}")
            for field, section in zip(fields, outer, strict=True)
        ]
    return fields


def split_between(text: str) -> str:
    """The split that the last word for one in a text names."""
    named = [*_SPLITS.finditer(text)]
    return "" if not named else "train" if named[-1][1] else "test" if named[-1][2][0] in "tT" else "valid"


def _told_apart(field: PrintedField, fields: list[PrintedField], text: str, section: str) -> PrintedField | None:
    """A field whose name another one of the line has: with the split that it is of, or with the word before its
    bracket, as in `tot_loss[loss=1.3]`."""
    names = [other.name for other in fields]
    if field.name not in names:
        return field
    section = section or split_between(names[-1].replace("_", " "))
    if section not in ("", "train") and (name := f"{section}/{field.name}") not in names:
        return field._replace(name=name)
    group = _GROUP.search(text, max(0, field.start - 200), field.start)
    return field._replace(name=f"{group[1].lower()}_{field.name}") if group is not None else None


def _field_of(match: re.Match[str], has_position: bool, before: str) -> PrintedField | None:
    said = _SAID.sub("", match[1]) if match[1][-1] in "sS" else match[1]
    name, has_sign, number = _name_of(said), match[2] is not None, match[3] or match[4]
    if name in _VALID_WORDS and "." not in number:
        return None  # `validation: 128 batches`
    if name in _VALID_WORDS:
        # `loss train 0.85 valid 0.91`
        name = f"valid/{before.removesuffix('_train') if before.endswith('_train') else name}"
    if form(name) in _NOT_METRICS or _FILES.fullmatch(name) or name.startswith("__") or _NO_FIGURE.search(name):
        return None
    if not has_sign:
        if "." not in number and _NEXT_NUMBER.match(match.string, match.end()) is not None:
            return None  # `loss 10 0.512`: a position, and the value.
        is_number = has_position and "." in number
        is_phrase = said.count(" ") > 2 or " of " in said
        if is_phrase or not (is_known(name) or is_number or name.startswith("valid/")):
            return None
    value = number_of(number) * (_THOUSANDS[match[5].upper()] if match[5] else 1.0)
    mean = number_of(match[6]) if match[6] else None
    mean = None if mean is not None and mean < 0 < value else mean  # That is a change.
    return PrintedField(name, value, mean, match.start(), match.end(), has_sign)


@lru_cache(maxsize=4096)
def _name_of(text: str) -> str:
    """A name as it is printed, in lower case: `training's l2` -> `training_l2`, `lr(Cosine)` -> `lr`."""
    name = re.sub(r"(?:_\d{1,3})?'s\s", "_", text.strip().lower())
    if (scheduled := re.fullmatch(r"(lr|learning rate)\s?\(.*\)", name)) is not None:
        name = scheduled[1]
    name = re.sub(r"\b(train(?:ing)?|valid(?:ation)?|val|eval(?:uation)?|test|dev) set\b", r"\1", name)
    return re.sub(r"\s{1,4}", "_", name).strip("-./'\"_")
