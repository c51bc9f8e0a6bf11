"""What the tag of a logged value means: the name of its metric, its split, and its core.

The rule, in this order; letters may be upper or lower case:

1. A pattern of the user (`[script.tags]`), if it matches the whole tag.
2. A core is named by `core`, `rank`, `replica`, `device`, `shard`, `worker`, `process`, `tpu`, `gpu` or `xla` with a
   number, as a part of its own or at the end of a part: `loss/core3`, `loss_rank3`, `rank3/loss`, `[xla:0] loss`.
3. A split is named by a part of its own, by the beginning of the first or last part, by the end of the last part, or
   between the other words of the last part: `train/loss`, `Loss/valid`, `eval_loss`, `acc_val`, `epoch_val_loss`.
   `test` stays in the name, and its values count as validation; so do the results that only an evaluation has, such as
   `bbox/AP` and `metrics/recall`.
4. The rest is the name. `Loss` and `loss/loss` become `loss`.

Two tags never become the same metric: the second one keeps its tag as its name.

Some names are no metrics: step, epoch, the totals of both, and shares of them. `role_of` tells what a name is, for
columns of tables, keys of JSON, tags of TensorBoard and printed names alike. Pure.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import lru_cache
from typing import Literal, NamedTuple

from tputui.telemetry.events import Split
from tputui.telemetry.logged_values import LOSS, LOSS_NAMES, class_of, in_form

NAMES_MAX = 8_192
"""Tags whose meaning is stored; further ones are left out ..."""
NAMES_MAX_OF_CLASS = (1 << 16, NAMES_MAX + 1_024, NAMES_MAX)
"""... except losses and validation values, by the class of `metric_names`."""
_LEFT_OUT_MAX = 1 << 16

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "tr"), "train"),
    **dict.fromkeys(("valid", "validation", "val", "va", "eval", "evaluation", "dev"), "valid"),
}  # fmt: skip
_SPLIT = "|".join(sorted(_SPLITS, key=len, reverse=True))
_SEPARATOR = r"[_.:\- ]"
_CORE = r"(?:local_rank|core|rank|replica|device|shard|worker|process|proc|tpu|gpu|xla)[_:\-. ]?(\d{1,5})"
_BRACKETED_CORE = re.compile(rf"\s*\[\s*{_CORE}\s*\]\s*", re.IGNORECASE)
_CORE_PART = re.compile(_CORE, re.IGNORECASE)
_CORE_END = re.compile(rf"(.+?){_SEPARATOR}{_CORE}", re.IGNORECASE)
_SPLIT_START = re.compile(rf"({_SPLIT}){_SEPARATOR}+(.+)", re.IGNORECASE)
_SPLIT_END = re.compile(rf"(.+?){_SEPARATOR}+({_SPLIT})", re.IGNORECASE)
_SPLIT_INSIDE = re.compile(rf"(epoch|step|batch|running|avg|mean)_({_SPLIT})_(.+)", re.IGNORECASE)
"""Keras and W&B's `epoch_val_loss`."""
_TEST = re.compile(r"(?:.*[/_.:\- ])?test(?:ing)?(?:[/_.:\- ].*)?", re.IGNORECASE | re.DOTALL)


STEP_NAMES = (
    "global_step", "trainer/global_step", "train/global_step", "step", "_step", "train_step", "iteration", "iter",
    "num_updates", "update", "updates", "current_steps", "current_step", "timesteps", "total_timesteps",
    "num_timesteps", "env_steps", "totalenvinteracts", "time/total_timesteps", "misc/total_timesteps",
)  # fmt: skip
"""Names of the step, the preferred one first; compared in lower case with `_` for blanks and dashes."""
EPOCH_NAMES = ("epoch", "train/epoch", "trainer/epoch", "_epoch")
TIME_NAMES = ("timestamp", "_timestamp", "wall_time", "unix_time", "datetime", "created_at", "date", "time", "ts", "t")

Role = Literal["metric", "step", "epoch", "total_steps", "total_epochs", "lr", "speed", "nothing"]
_ROLES: dict[str, Role] = {
    **dict.fromkeys(STEP_NAMES, "step"),
    **dict.fromkeys(EPOCH_NAMES, "epoch"),
    **dict.fromkeys(("total_steps", "max_steps", "num_training_steps", "max_iters", "max_iter"), "total_steps"),
    **dict.fromkeys(("total_epochs", "num_epochs", "max_epochs", "num_train_epochs"), "total_epochs"),
    **dict.fromkeys(
        ("samples_per_second", "train_samples_per_second", "samples/sec", "samples/s", "samples_per_sec",
         "examples/sec", "examples_per_second", "examples_per_s", "examples/s", "images/sec", "img/s", "rate",
         "imgs_per_sec"), "speed"
    ),
    **dict.fromkeys(("percentage", "n_parameters", "num_parameters", "num_params", "n_params"), "nothing"),
}  # fmt: skip
_LR = re.compile(r"(.*/)?(?:current_)?(lr|learning_rate)([-/].*|_?\d{1,3})?", re.IGNORECASE)
"""Names of the learning rate: `lr-Adam` is that of Lightning's monitor, `lr_0` that of a group."""
_RESULTS = re.compile(
    r"(?:\w{1,60}_)?m?ap(?:[sml]|[_@]?\d[\w.:-]{0,20})?|(?:\w{1,60}_)?m?iou|bleu\d?|rouge\w{0,20}|wer|cer|fid"
    r"|metrics/.*(?:precision|recall|map|acc|top|f1|iou).*",
    re.IGNORECASE,
)
"""Names of results that only an evaluation gives: of their last part, or of the whole name."""
_OF_XLA = re.compile(
    r"(?:.*/)?(?:aten|xla|[A-Z])\w{1,80}__"
    r"(?:TotalSamples|Accumulator|ValueRate|Rate|Percentile_\d{1,2}|Counter|Value)(?:_\w{1,9})?"
)
_FALLING = frozenset(
    ("loss", "losses", "error", "err", "mae", "mse", "rmse", "nll", "perplexity", "ppl", "wer", "cer", "fid", "bpb",
     "bpc", "ce", "xent", "mape", "rmsle")
)  # fmt: skip
"""Words of metrics whose lower values are better ..."""
_RISING = frozenset(
    ("acc", "accuracy", "top", "map", "ap", "iou", "miou", "f", "auc", "bleu", "rouge", "psnr", "ssim", "dice",
     "reward", "rew", "return", "score", "fb", "fscore", "precision", "recall", "r", "mrr", "ndcg")
)  # fmt: skip
"""... and higher ones; both without digits at their ends."""
_CHOOSING = ("map_50?_95", "map", "ap", "miou", "iou", "acc", "accuracy", "top", "f", "auc", "bleu", "reward", "score")
"""How the names end by which the best epoch is chosen if there is no validation loss, the preferred one first."""
_AROUND_LOSS = frozenset(("test", "set", "epoch", "avg", "average", "mean", "total", "global", "eval", "per", LOSS))
_FOREIGN_WORDS = {
    "train": "训练集 训练 訓練 학습", "val": "验证集 验证 驗證 検証 검증", "test": "测试集 测试 測試",
    "loss": "损失值 损失 損失 손실 pérdida perda потери", "accuracy": "准确率 准确度 正确率 精度 정확도 acurácia",
    "lr": "学习率 學習率 学習率 학습률", "epoch": "轮次 轮数 轮 周期 エポック 에포크 época эпоха", "mean": "平均",
    "iteration": "迭代次数 迭代", "step": "步数 步", "batch": "批次", "episode": "回合", "total": "总",
    "reward": "奖励", "score": "得分", "recall": "召回率", "precision": "精确率", "perplexity": "困惑度",
    "best": "最佳 最好 最优", "saved": "保存", "model": "模型",
}  # fmt: skip
"""What scripts in other languages print for words of training."""
_IN_ENGLISH = {word: name for name, of in _FOREIGN_WORDS.items() for word in of.split()}
_FOREIGN = re.compile("|".join(sorted(_IN_ENGLISH, key=len, reverse=True)), re.IGNORECASE)
_ORDINAL = re.compile(r"第\s?(\d{1,9}(?:\s?/\s?\d{1,9})?)\s?(?:个\s?)?(?=轮|周期|epoch|步|迭代|回合)(epoch|\w{1,2})")


def translated(text: str) -> str:
    """A line with the words of training in English, and plain signs."""
    english = _FOREIGN.sub(lambda match: f" {_IN_ENGLISH[match[0].lower()]} ", _ORDINAL.sub(r"\2 \1", text))
    return text if english == text else re.sub(r" {1,9}(?=[:,)% ])", "", unicodedata.normalize("NFKC", english))


def in_words(name: str) -> str:
    """A name in the form in which names are compared."""
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def is_of_xla(name: str) -> bool:
    """Whether a name is of the report of torch_xla's metrics and counters, which its examples log by the hundred."""
    return "__" in name and _OF_XLA.fullmatch(name) is not None


def total_of(name: str) -> Role:
    """What a key of a configuration is: `total_steps`, `total_epochs`, or `nothing` of the progress."""
    key = in_words(name)
    role = "total_epochs" if key == "epochs" else _ROLES.get(key, "nothing")
    return role if role in ("total_steps", "total_epochs") else "nothing"


def role_of(name: str) -> Role:
    """What a name of a value is, as far as the name alone tells."""
    if (role := _ROLES.get(in_words(name))) is not None:
        return role
    return "lr" if _LR.fullmatch(name) else "metric"


def _words(name: str) -> list[str]:
    return [word.rstrip("0123456789") or word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


@lru_cache(maxsize=1024)
def is_falling(name: str) -> bool:
    """Whether lower values of a metric are better: by the last word of its name that tells."""
    return next((word in _FALLING for word in reversed(_words(name)) if word in _FALLING | _RISING), False)


def has_direction(name: str) -> bool:
    """Whether the name of a metric says if lower or higher values are better."""
    return not (_FALLING | _RISING).isdisjoint(_words(name))


@lru_cache(maxsize=1024)
def choice_rank(name: str) -> int | None:
    """How well a validation metric is suited to choose the best epoch, 0 best: a loss, then the main result.

    None if not at all, as the loss of a part, such as of boxes.
    """
    words = _words(name)
    if LOSS in words and set(words) <= _AROUND_LOSS:
        return 0 if words == [LOSS] else 1
    joined = "_".join(re.split(r"[^a-z0-9]+|(?<=[a-z])(?=\d)", re.sub(r"\(\w\)", "", name.lower()))).strip("_")
    for rank, ending in enumerate(_CHOOSING, 2):
        if re.search(rf"(?:^|_){ending}(?:_1)?$", joined):
            return rank
    if LOSS in words:
        return None
    return 2 + len(_CHOOSING) if any(word in _FALLING | _RISING for word in words) else None


class TagMeaning(NamedTuple):
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
    split_of: Split = "valid" if is_valid else "train"
    return TagMeaning(_canonical(name, split_of), split_of, number)


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
    for place in (-1, 0) if split is None else ():
        if split is None and parts:
            parts[place], split = _without_split(parts[place])
    name = "/".join(parts) or tag
    if split is None and parts and (_RESULTS.fullmatch(parts[-1]) or _RESULTS.fullmatch(name)):
        split = "valid"
    return TagMeaning(_canonical(name, split or "train"), split or "train", core)


def is_test(name: str) -> bool:
    """Whether the values of a name are those of a test, which may come after training."""
    return _TEST.fullmatch(name) is not None


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
    if (inside := _SPLIT_INSIDE.fullmatch(part)) is not None:
        return f"{inside[1]}_{inside[3]}", _SPLITS[inside[2].lower()]
    return part, None


def _canonical(name: str, split: Split) -> str:
    """The name; `loss` however often and in whatever case it is written, and of the epochs of validation."""
    is_of_epoch = split == "valid" and name.lower() in ("loss_epoch", "epoch_loss")
    return LOSS if is_of_epoch or set(name.lower().removesuffix("es").split("/")) == {LOSS} else name


PART_RANK = 2 * len(LOSS_NAMES)
_OBJECTIVES = frozenset(("rmse", "mse", "mae", "l1", "l2", "logloss", "mlogloss", "deviance", "learn"))
"""What is minimised where nothing is called a loss, as in gradient boosting."""


def loss_rank(meaning: TagMeaning) -> int | None:
    """How likely a metric is the training loss, 0 most; None if it is not.

    First the names of `LOSS_NAMES`, then names with such a last part (`learning/loss`); only of the training split.
    From `PART_RANK` on it is one with the word `loss`, which may as well be that of a part, as of boxes;
    behind it are those of gradient boosting.
    """
    if meaning.split != "train":
        return None
    name = in_form(meaning.name)
    for base, wanted in ((0, name), (len(LOSS_NAMES), name.rpartition("/")[2])):
        if wanted in LOSS_NAMES:
            return base + LOSS_NAMES.index(wanted)
    words = name.rpartition("/")[2].split("_")
    return PART_RANK if LOSS in words else PART_RANK + 1 if words[-1] in _OBJECTIVES else None


_TEST_FILE = re.compile(r"(?:.*/)?test_error\.tsv")
"""The evaluation of CatBoost, whose columns are named as those of the training."""


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
        meaning = self._rule.meaning_of(f"test/{tag}" if _TEST_FILE.fullmatch(source) else tag)
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
