"""What the tags of logged values mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.logs.tags import (
    BadPattern,
    TagMeaning,
    TagNames,
    TagRule,
    choice_rank,
    is_falling,
    is_of_xla,
    loss_rank,
    meaning_of,
)

CASES = {
    "loss": ("loss", "train", None),
    "Loss": ("loss", "train", None),
    "train/loss": ("loss", "train", None),
    "loss/train": ("loss", "train", None),
    "Loss/train": ("loss", "train", None),
    "train_loss": ("loss", "train", None),
    "train.loss": ("loss", "train", None),
    "Training Loss": ("loss", "train", None),
    "eval_loss": ("loss", "valid", None),
    "eval/loss": ("loss", "valid", None),
    "val/acc": ("acc", "valid", None),
    "valid_acc": ("acc", "valid", None),
    "val_loss": ("loss", "valid", None),
    "acc_val": ("acc", "valid", None),
    "accuracy/validation": ("accuracy", "valid", None),
    "epoch/val_loss": ("epoch/loss", "valid", None),
    "validation/epoch_loss": ("loss", "valid", None),
    "val_loss_epoch": ("loss", "valid", None),
    "epoch_val_loss": ("loss", "valid", None),
    "epoch_val_acc": ("epoch_acc", "valid", None),
    "eval_episode/score": ("episode/score", "valid", None),
    "metrics/mAP50-95(B)": ("metrics/mAP50-95(B)", "valid", None),
    "metrics/recall(B)": ("metrics/recall(B)", "valid", None),
    "metrics/mAP_0.5": ("metrics/mAP_0.5", "valid", None),
    "metrics/reward": ("metrics/reward", "train", None),
    "bbox/AP": ("bbox/AP", "valid", None),
    "bbox/AP50": ("bbox/AP50", "valid", None),
    "coco/bbox_mAP_50": ("coco/bbox_mAP_50", "valid", None),
    "map_size": ("map_size", "train", None),
    "test_loss": ("test_loss", "valid", None),
    "test/acc": ("test/acc", "valid", None),
    "acc_test": ("acc_test", "valid", None),
    "latest_loss": ("latest_loss", "train", None),
    "loss/core3": ("loss", "train", 3),
    "loss_rank3": ("loss", "train", 3),
    "loss/rank_3": ("loss", "train", 3),
    "rank3/loss": ("loss", "train", 3),
    "train/loss/core 12": ("loss", "train", 12),
    "loss_core0/loss": ("loss", "train", 0),
    "aux_core1/aux": ("aux", "train", 1),
    "[xla:0] loss": ("loss", "train", 0),
    "loss[xla:7]": ("loss", "train", 7),
    "loss.device2": ("loss", "train", 2),
    "train_loss_core5": ("loss", "train", 5),
    "eval_loss_rank1": ("loss", "valid", 1),
    "learning/loss": ("learning/loss", "train", None),
    "learning_rate": ("learning_rate", "train", None),
    "lr-Adam": ("lr-Adam", "train", None),
    "train": ("train", "train", None),
    "score3": ("score3", "train", None),
    "core3": ("core3", "train", None),
    "f1/3": ("f1/3", "train", None),
    "/": ("/", "train", None),
}


@pytest.mark.parametrize(("tag", "meaning"), CASES.items(), ids=CASES)
def test_tag_has_name_split_and_core(tag: str, meaning: tuple[str, str, int | None]) -> None:
    assert tuple(meaning_of(tag)) == meaning


WORDS = st.sampled_from(
    ["loss", "Loss", "train", "val", "eval", "acc", "core1", "rank_1", "test", "[xla:1]", "step", "3", ""]
)
TAGS = st.lists(WORDS, min_size=1, max_size=4).flatmap(
    lambda words: st.sampled_from(["/", "_", ".", " "]).map(lambda separator: separator.join(words))
)


@given(st.lists(st.tuples(st.sampled_from(["a.csv", "b.csv", "console"]), TAGS | st.text(max_size=20)), unique=True))
def test_different_tags_never_become_one_metric(tags: list[tuple[str, str]]) -> None:
    names = TagNames(TagRule())
    meanings = [names.meaning_of(*tag) for tag in tags]
    assert len({(meaning.label, meaning.split) for meaning in meanings if meaning}) == len(tags)
    assert meanings == [names.meaning_of(*tag) for tag in tags]


def test_direction_of_a_metric_is_that_of_the_last_word_that_tells() -> None:
    falling = ["loss", "test/loss", "valid_ppl", "top1_err", "Average loss", "wer", "score_loss", "rmse"]
    rising = ["acc@1", "metrics/mAP50-95(B)", "episode_reward", "loss_acc", "top1", "f1", "mfu"]
    assert [name for name in (*falling, *rising) if is_falling(name)] == falling


def test_best_epoch_is_chosen_by_the_loss_or_the_main_result() -> None:
    names = ["coco/bbox_mAP_50", "box_loss", "metrics/mAP50(B)", "acc@5", "lr", "metrics/mAP50-95(B)", "acc@1", "loss"]
    names += ["test_loss", "coco/bbox_mAP", "loss_epoch", "runtime"]
    ranks = {name: rank for name in names if (rank := choice_rank(name)) is not None}
    ordered = sorted(ranks, key=lambda name: ranks[name])
    assert ordered[:6] == ["loss", "test_loss", "loss_epoch", "metrics/mAP50-95(B)", "coco/bbox_mAP", "acc@1"]
    assert not {"box_loss", "lr", "runtime"} & {*ranks}


def test_the_report_of_xla_is_known_by_its_names() -> None:
    tags = [
        "CompileTime__Percentile_50_sec",
        "ExecuteTime__TotalSamples",
        "aten___local_scalar_dense__Value",
        "a__loss",
    ]
    assert [is_of_xla(tag) for tag in tags] == [True, True, True, False]


def test_second_tag_for_a_metric_keeps_its_tag_as_its_name() -> None:
    names = TagNames(TagRule())
    assert names.meaning_of("a.csv", "loss") == TagMeaning("loss", "train")
    assert names.meaning_of("a.csv", "train_loss") == TagMeaning("train_loss", "train")
    assert names.meaning_of("b.csv", "loss") == TagMeaning("loss (b.csv)", "train")


def test_order_of_the_loss() -> None:
    tags = ["learning/loss", "total_loss", "aux_loss", "train/loss_step", "accuracy", "eval_loss", "loss"]
    ranks = {tag: loss_rank(meaning_of(tag)) for tag in tags}
    assert ranks["accuracy"] is ranks["eval_loss"] is None
    ordered = sorted((tag for tag in tags if ranks[tag] is not None), key=lambda tag: ranks[tag] or 0)
    assert ordered == ["loss", "train/loss_step", "total_loss", "learning/loss", "aux_loss"]


def test_pattern_of_the_user_comes_first() -> None:
    rule = TagRule(r"(?P<split>\w+)\.(?P<name>\w+)@(?P<core>\d+)")
    assert rule.meaning_of("dev.loss@12") == TagMeaning("loss", "valid", 12)
    assert rule.meaning_of("train.loss@0") == TagMeaning("loss", "train", 0)
    assert rule.meaning_of("eval_loss") == TagMeaning("loss", "valid")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("(", "not a regular expression"), (r"(?P<split>\w+)", "no group"), (r"(?P<name>a)(?P<epoch>b)", "'epoch'")],
)
def test_unusable_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(BadPattern, match=reason):
        TagRule(pattern)
