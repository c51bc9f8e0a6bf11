"""Rules about learning: why the loss does not fall, or falls where it should not, from the curves of a run alone.

Every threshold is a number of standard errors of a noise that is estimated from the curve, or has its source beside it.
A rule that needs more values gives no answer, see `diagnose`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import mul
from statistics import fmean, median

from msgspec.structs import replace

from tputui import formatting as fmt
from tputui.diagnosis.curve import BLOCKS, Curve
from tputui.diagnosis.diagnosed_run import DiagnosedRun
from tputui.diagnosis.learning_run import LearningRun
from tputui.diagnosis.verdict import RuleName, Verdict
from tputui.state.evidence_groups import Line
from tputui.state.run_condition import ENDED
from tputui.state.snapshot import Snapshot

POINTS_MIN = 20
"""Values of a curve from which its noise is known to about 20 %."""
EVALUATIONS_MIN = 5
RISE_MIN = 0.08
"""Rise of the validation loss over its best. Prechelt (1998, "Early stopping - but when?") stops at 5 %; a run that was
stopped early is not yet overfitting."""
RISE_OF_DROP_MIN = 0.12
"""The same rise as a share of what training had gained before. A converged loss near zero may double without loss."""
DIVERGED_OF_DROP = 0.5
"""Rise of the training loss, as a share of what was gained before, from which the gain counts as lost."""
GUESS_WITHIN = 0.015
"""Relative distance from ln k: less than half of that between ln 9 and ln 10, and what untrained weights add."""
GUESS_CLASSES = (*range(2, 11), 20, 50, 100, 200, 1000)
"""Numbers of classes that are tried if the run names none."""
SAME = 1e-6
"""Relative difference up to which float32 means over the same examples are equal."""
LR_ZERO_SHARE = 0.25
"""Share of the newest reports with a learning rate of 0. A schedule that ends at 0 has the last ones."""
NORM_GROWTH = 10.0
"""Growth of the gradient norm; runs of language models double or triple theirs (Zhang et al. 2022, OPT logbook)."""
SEASON_MIN = 0.64
"""Strength of seasonality from which Wang, Smith and Hyndman (2006) call a series seasonal; 0 none, 1 only that."""
SEASON_BINS = 8
EPOCHS_MAX = 12
"""Newest epochs that are compared."""
COURSE_MIN = 0.02
"""Share of the loss by which the same course in each epoch goes up and down; less is the order of a few batches."""
GAP_MIN = 0.5
"""Distance of validation from training, as a share of what training gained. Label smoothing, mixup and dropout, which
validation does without, move it by less than 0.45."""
UNTRAINED = 1.25
"""Factor on the first training loss above which validation is worse than without training; at most 1 if healthy."""
CORE_APART, CORE_DEVIATIONS = 0.1, 6.0
"""Distance of a core from the others, as a share of the loss: shares of few examples differ by a few percent."""
CORE_APART_OF_FIRST = 0.01
"""The same as a share of the loss at first: near zero, every difference is a large share."""
PLATEAU_SHARE = 0.6
"""Share of the run without progress from which a plateau is found."""
PLATEAU_FALL = 0.06
"""What the loss may still fall within that, at most, as a share of what it fell before."""
PLATEAU_LEVEL = 0.45
"""A loss that fell below this share of its first value has learned, and its floor is taken for that of the data."""


def overfitting(run: LearningRun) -> Iterator[Verdict]:
    """Validation that gets worse beyond its noise while training gets better."""
    name, train, valid = run.judged
    count = len(valid.values)
    if count < EVALUATIONS_MIN or len(train.values) < 3:
        return
    smooth = valid.smooth()
    best = min(range(count), key=smooth.__getitem__)
    after = valid.values[best + 1 :]
    if len(after) < 3:
        return
    newest = after[-max(2, len(after) // 3) :]
    now, lowest = median(newest), smooth[best]
    rise, noise = now - lowest, valid.noise
    start = max(valid.values[0], train.values[0])
    relative = rise / abs(lowest) if lowest else math.inf
    is_beyond = rise > 4 * noise and min(newest) > lowest + rise / 3
    is_large = rise >= RISE_OF_DROP_MIN * (start - lowest) and (relative >= RISE_MIN or min(valid.values) < 0)
    at_best, at_end = _around(train, valid.steps[best]).level, train.share(0.9, 1.0).level
    if is_beyond and is_large and at_end.is_below(at_best, 2):
        best = min(range(max(best - 1, 0), best + 2), key=valid.values.__getitem__)
        shown, where = valid.shown, run.moment(valid, best)
        times = f", {rise / noise:.0f} times its noise" if noise else ""
        yield run.verdict(
            "overfitting", f"validation gets worse since {where} while training gets better", since=(valid, best),
            evidence=[
                f"valid {name} {fmt.number(shown(valid.values[best]))} at {where}, now {fmt.number(shown(now))}{times}",
                f"train {name} {fmt.number(shown(at_best.mean))} -> {fmt.number(shown(at_end.mean))} since"],
            fix="stop and keep the best checkpoint; further: more data, augmentation, weight decay or a smaller model",
            keep_step=valid.steps[best],
        )  # fmt: skip


def _around(curve: Curve, step: int) -> Curve:
    """The values near a step: a tenth of the curve up to it, at most from the half of these steps on."""
    end = max(bisect_right(curve.steps, step), 1)
    return curve.part(max(end // 2, end - max(len(curve.values) // 10, 1)), end)


def divergence(run: LearningRun) -> Iterator[Verdict]:
    """A training loss that lost what it had gained, or that is NaN for good."""
    loss = run.fine_loss
    count = len(loss.values)
    if run.is_adversarial or not count or (count < POINTS_MIN and not loss.ends_badly):
        return
    risen = None if count < 4 else _risen_from(loss) or _exploded_at(loss)
    if risen is None and not loss.ends_badly:
        return
    best = bisect_right(loss.steps, risen) - 1 if risen is not None else count - 1
    lowest, newest = loss.values[best], loss.values[-1]
    text = f"the loss diverges since {run.moment(loss, best)}"
    if loss.ends_badly:
        text += f"; NaN or infinite after step {fmt.count(loss.steps[-1])}"
    lr = run.lr_at(loss.steps[best])
    yield run.verdict(
        "divergence",
        text if risen is not None else f"the loss is NaN or infinite after step {fmt.count(loss.steps[-1])}",
        since=(loss, best), evidence=[
            f"train {run.name} {fmt.number(loss.shown(lowest))} there, {fmt.number(loss.shown(newest))} at "
            f"step {fmt.count(loss.steps[-1])}; noise {fmt.number(loss.noise)}",
            *([f"learning rate {fmt.number(lr)} at that time"] if lr is not None else [])],
        fix="go back to the last checkpoint before it with a lower learning rate, warm-up or gradient clipping"
        if risen is not None
        else "look for log(0), 0/0 or an example with NaN in that step; in 16 bits, use bfloat16 or loss scaling",
        keep_step=loss.steps[best],
    )  # fmt: skip


def _risen_from(loss: Curve) -> int | None:
    """The step from which the loss has risen for good; None if it has not."""
    coarse = loss.coarse()
    values, count = coarse.values, len(coarse.values)
    smooth = coarse.smooth()
    best = min(range(count), key=smooth.__getitem__)
    tail = values[-max(3, count // 20) :]
    first, lowest, now = median(values[: max(1, count // 40)]), smooth[best], median(tail)
    drift = Curve(range(BLOCKS), coarse.block_means()).noise
    gained, rise = max(first - lowest, 0.0), now - lowest
    scale = max(gained, 0.25 * abs(first), 10 * coarse.noise)
    if best >= count - len(tail) and not loss.ends_badly:
        return None
    if rise < DIVERGED_OF_DROP * scale or rise < max(6 * coarse.noise, 4 * drift) or min(tail) < lowest + rise / 2:
        return None
    if gained < 0.5 * abs(first) and now < first + 0.25 * abs(first):
        return None  # Little was gained, and no more than that is lost: a loss that wanders.
    half = next((at for at in range(best, count) if smooth[at] > lowest + rise / 2), count)
    left = max(at for at in range(min(half + 1, count)) if smooth[at] <= lowest + max(4 * coarse.noise, 0.1 * rise))
    if gained < 0.25 * abs(first) and half - left > max(1, count // 20) and half < 0.7 * count:
        # Nothing was learned before, and the loss rises slowly and levels off, as that of a generator of images does
        # whose discriminator learns faster.
        return None
    return coarse.steps[left]


def _exploded_at(loss: Curve) -> int | None:
    """The step of a jump to a multiple of the first value, below which the loss has not fallen since."""
    coarse, first = loss.coarse(), loss.values[0]
    values = coarse.values
    high = max(3 * first, first + 6 * loss.noise)
    at = next((place for place, value in enumerate(values) if value > high), 0) if first > 0 else 0
    # A rise over several of the blocks is that of a loss whose scale grows, such as a penalty.
    is_sudden = (at > 0 and values[max(at - 3, 0)] < 1.3 * first) or (at == 0 and values[0] > high > 0 < first)
    late = coarse.share(0.5, 1.0).values
    # Medians, since single outliers are no explosion.
    stays_high = at > 0 and median(values[at : at + 3]) > max(1.3 * first, first + 2 * loss.noise)
    return coarse.steps[at] if is_sudden and (stays_high or at == 0) and median(late) > 0.9 * first else None


def guessing(run: LearningRun) -> Iterator[Verdict]:
    """A loss that stays at that of a guess: ln k for k classes, or the entropy of how often they occur."""
    if run.is_adversarial or len(run.loss.values) < POINTS_MIN or not run.is_far_enough:
        return
    late = run.loss.share(1 / 3, 1.0)
    for guess, what, is_named in run.guesses(GUESS_CLASSES):
        split = "train" if _is_at(guess, run.loss, is_named) else "valid" if _validates_at(guess, run, is_named) else ""
        if not split:
            continue
        level = late.level.mean if split == "train" else fmean(run.valid_loss.values)
        yield run.verdict(
            "guessing", f"the {split} loss stays at {fmt.number(guess)}, that of guessing ({what})",
            since=(run.loss, 0), evidence=[
                f"{split} {run.name} {fmt.number(level)} on average, train {fmt.number(run.loss.values[0])} -> "
                f"{fmt.number(late.share(0.9, 1.0).level.mean)}, noise {fmt.number(run.loss.noise)}"],
            fix="check labels, inputs, and the parameters of the optimizer; then learn a single batch by heart",
        )  # fmt: skip
        return


def _is_at(guess: float, loss: Curve, is_named: bool) -> bool:
    """Whether a training loss is at that of a guess for its last two thirds. Untrained weights begin there; a number of
    classes that the run does not name is only believed if the loss did, too."""
    late, first = loss.share(1 / 3, 1.0), fmean(loss.share(0.0, 0.05).values)
    near = GUESS_WITHIN * guess
    if abs(fmean(late.values) - guess) > near or 3 * late.level.error > near or not _stays(late):
        return False
    return first - late.level.mean <= 0.25 * guess if is_named else abs(first - guess) <= 0.15 * guess and late.is_flat


def _validates_at(guess: float, run: LearningRun, is_named: bool) -> bool:
    """Whether no validation loss is better than a guess and it no longer falls, while training learns a little by
    heart."""
    loss, late = run.loss, run.valid_loss.share(1 / 3, 1.0).values
    if len(run.valid_loss.values) < EVALUATIONS_MIN or (abs(loss.values[0] - guess) > 0.15 * guess and not is_named):
        return False
    has_fallen = loss.values[0] - fmean(loss.share(0.9, 1.0).values) > 0.25 * guess
    falls = fmean(late[: len(late) // 2]) - fmean(late[len(late) // 2 :]) > GUESS_WITHIN * guess
    return not has_fallen and not falls and all(-GUESS_WITHIN <= value / guess - 1 <= 0.25 for value in late)


def _stays(curve: Curve) -> bool:
    """Whether the second half of a curve is not lower than the first beyond noise, or by less than 0.2 %."""
    first, second = curve.share(0.0, 0.5).level, curve.share(0.5, 1.0).level
    return not second.is_below(first, 3) or first.mean - second.mean < 0.002 * abs(first.mean)


def learning_rate(run: LearningRun) -> Iterator[Verdict]:
    """A learning rate of 0, or weights that do not change although it is not."""
    rates = run.lr
    zeros = 0
    for value in reversed(rates.values):
        if value != 0:
            break
        zeros += 1
    steps = run.steps - rates.steps[-zeros] if zeros else 0
    if zeros >= 2 and zeros >= LR_ZERO_SHARE * len(rates.values) and steps >= POINTS_MIN:
        at = len(rates.values) - zeros
        when = "from the first step on" if at == 0 else f"since {run.moment(rates, at)}"
        yield run.verdict(
            "learning_rate", f"the learning rate is 0 {when}, so nothing is learned", since=(rates, at),
            evidence=[f"{fmt.counted(zeros, 'report')} with learning rate 0 in a row, up to the newest"],
            fix="check the configured rate, the length of the schedule and that the scheduler steps once per step",
        )  # fmt: skip
        return
    for what, curve in (("valid", run.valid_loss), ("train", run.epoch_means)):
        if _is_same(curve):
            yield run.verdict(
                "learning_rate", f"the weights do not change: the {what} {run.name} of all epochs is equal",
                since=(curve, 0), evidence=[
                    f"{what} {run.name} {fmt.number(curve.shown(curve.values[0]))} in {len(curve.values)} evaluations, "
                    f"within {SAME:g} of each other",
                    *([f"learning rate {fmt.number(rates.values[-1])}"] if rates.values else [])],
                fix="give the optimizer the parameters of this model; call optimizer.step(); check requires_grad",
            )  # fmt: skip
            return


def _is_same(curve: Curve) -> bool:
    """Whether all values are equal within the rounding of float32, and are no perfect result; of printed values with
    few digits, more are needed."""
    if not curve.values:
        return False
    first = curve.values[0]
    needed = 3 if f"{abs(first):.4g}" != f"{abs(first):.9g}" else 6
    if len(curve.values) < needed or abs(first) < 1e-6:
        return False
    return max(curve.values) - min(curve.values) <= SAME * abs(first)


def plateau(run: LearningRun) -> Iterator[Verdict]:
    """A loss that fell and then stays far above zero at a constant learning rate."""
    loss = run.loss
    count = len(loss.values)
    if run.is_adversarial or count < 2 * POINTS_MIN or min(loss.values) <= 0 or run.lr_has_decayed or run.is_one_epoch:
        return
    late = loss.share(1 - PLATEAU_SHARE, 1.0)
    first, level = loss.share(0.0, 0.02).level.mean, late.level.mean
    if not PLATEAU_LEVEL * first <= level <= 0.9 * first or first - level < 5 * loss.noise:
        return
    earlier, later = late.share(0.0, 0.5).level, late.share(0.5, 1.0).level
    error = math.hypot(earlier.error, later.error)
    # Flat has to be shown: a slow fall that the noise hides is none.
    falls = max(earlier.mean - later.mean, 0.0)
    if falls > 1.5 * error or falls + 2 * error > PLATEAU_FALL * (first - level) or not late.is_flat:
        return
    if run.has_learned or run.validation_improves:
        return
    at = next(place for place in range(count) if loss.values[place] <= level + loss.noise)
    lr = run.lr_at(loss.steps[at])
    yield run.verdict(
        "plateau", f"the loss has not fallen since {run.moment(loss, at)}"
        + (f", at a learning rate of {fmt.number(lr)}" if lr is not None else ""),
        status="found" if lr is not None else "hint", since=(loss, at), evidence=[
            f"train {run.name} {fmt.number(first)} at first, {fmt.number(level)} over the last "
            f"{PLATEAU_SHARE:.0%} without a trend, noise {fmt.number(loss.noise)}".replace("%", " %")],
        fix="lower the learning rate by 3 to 10, or warm up to a higher one; a larger model if it stays",
    )  # fmt: skip


def gradient_norm(run: LearningRun) -> Iterator[Verdict]:
    """A gradient norm of zero, or one that grows until now."""
    norm = run.norm
    count = len(norm.values)
    if count < POINTS_MIN:
        return
    late = norm.share(0.5, 1.0).values
    if max(late) == 0.0 and not run.has_learned:
        at = next(place for place in range(count) if max(norm.values[place:]) == 0.0)
        yield run.verdict(
            "gradient_norm", f"the gradient is zero since {run.moment(norm, at)}", since=(norm, at),
            evidence=[f"{run.norm_name} 0 in {count - at} values in a row"],
            fix="look for detach(), no_grad(), dead activations or a loss without a gradient; in float16, scale it",
        )  # fmt: skip
        return
    logs = Curve(norm.steps, [math.log10(max(value, 1e-30)) for value in norm.values])
    early = logs.part(0, max(3, count // 40)).level
    parts = [early, *(logs.share(begin, begin + 0.2).level for begin in (0.2, 0.4, 0.6, 0.8))]
    grown = 10 ** (parts[-1].mean - parts[0].mean)
    is_growing = all(earlier.is_below(later, 3) for earlier, later in itertools.pairwise(parts))
    if grown >= NORM_GROWTH and is_growing and min(norm.values[-3:]) > 0:
        yield run.verdict(
            "gradient_norm", f"the gradient norm grows: {fmt.number(grown)} times as large as at the beginning",
            since=(norm, count // 10),
            evidence=[f"{run.norm_name} {fmt.number(10 ** parts[0].mean)} -> {fmt.number(10 ** parts[-1].mean)}"],
            fix="call optimizer.zero_grad() once per update; clip the norm, and lower the learning rate",
        )  # fmt: skip


def constant_metric(run: LearningRun) -> Iterator[Verdict]:
    """A result that is the same in every evaluation, though not the best possible one."""
    for name, split, curve in run.results:
        values = curve.values
        needed = EVALUATIONS_MIN if split == "valid" else POINTS_MIN
        best = 0.0 if curve.sign > 0 else (100.0 if values and abs(values[0]) > 1 else 1.0)
        if len(values) < needed or max(values) != min(values) or curve.shown(values[0]) == best:
            continue
        yield run.verdict(
            "constant_metric", f"{split} {name} never changes", since=(curve, 0),
            evidence=[f"{fmt.number(curve.shown(values[0]))} in all {len(values)} values"],
            fix="look whether all predictions are equal, and whether the metric gets predictions and labels",
        )  # fmt: skip
        return


def epoch_jump(run: LearningRun) -> Iterator[Verdict]:
    """A loss that jumps up where epochs begin, or takes the same course in each of them, while the learning rate does
    not."""
    ends = run.epoch_ends
    inner = ends[1:-1]
    if run.is_adversarial or len(inner) < 3 or len(run.fine_loss.values) < 10 * len(ends):
        return
    width = ends[1] - ends[0]
    inner = inner[-EPOCHS_MAX:]
    loss = run.fine_loss.since(inner[0] - width).coarse(3 * SEASON_BINS * len(inner))
    if run.lr_rises(inner):
        return
    jumps = [jump for end in inner if (jump := _jump(loss, end, max(0.15 * width, 2.0))) is not None]
    around = [end + width / 2 for end in inner]
    is_up = len(jumps) >= 3 and sum(jump > 0 for jump in jumps) >= 0.9 * len(jumps)
    is_up = is_up and median(jumps) > loss.noise and _season(loss, around, width, 1)[0] >= SEASON_MIN
    strength, size = _season(loss, inner, width, 2)
    if is_up:
        text = f"the loss jumps up by {fmt.number(median(jumps))} where epochs begin, at {len(jumps)} of {len(inner)}"
    elif strength >= SEASON_MIN and size > max(loss.noise / 2, COURSE_MIN * abs(loss.share(0.5, 1.0).level.mean)):
        text = f"the loss takes the same course in each epoch, up and down by {fmt.number(size)}"
    else:
        return
    yield run.verdict(
        "epoch_jump", text, since_step=ends[0] + 1, evidence=[
            f"{max(strength, 0.0) * 100:.0f} % of the variation within an epoch repeats in the others; "
            f"noise {fmt.number(loss.noise)}"],
        fix="shuffle the training data in every epoch; keep the state of optimizer and BatchNorm between epochs",
    )  # fmt: skip


def _jump(loss: Curve, end: float, reach: float) -> float | None:
    """How much higher the loss is after a step than before; None without two values on both sides."""
    before, after = loss.values_between(end - reach + 1, end), loss.values_between(end + 1, end + reach)
    return fmean(after) - fmean(before) if min(len(before), len(after)) >= 2 else None


def _season(loss: Curve, ends: Sequence[float], width: float, degree: int) -> tuple[float, float]:
    """What repeats in each window of an epoch's width: its strength, 1 - variance of the rest / variance with it (Wang
    et al. 2006), and its standard deviation. The trend in each, a line or a parabola by the degree, is removed."""
    at = [place - (SEASON_BINS - 1) / 2 for place in range(SEASON_BINS)]
    trends = [at, [one**2 - fmean(other**2 for other in at) for one in at]][:degree]
    rows = []
    for end in ends:
        edges = [end - width + width * place / SEASON_BINS for place in range(SEASON_BINS + 1)]
        parts = [loss.values_between(low + 0.5, high + 0.5) for low, high in itertools.pairwise(edges)]
        if not all(parts):
            continue
        means = [fmean(part) for part in parts]
        row = [mean - fmean(means) for mean in means]
        for trend in trends:
            slope = sum(map(mul, row, trend)) / sum(map(mul, trend, trend))
            row = [one - slope * other for one, other in zip(row, trend, strict=True)]
        rows.append(row)
    if len(rows) < 3:
        return 0.0, 0.0
    season = [fmean(column) for column in zip(*rows, strict=True)]
    total = fmean(one**2 for row in rows for one in row)
    rest = fmean((one - mean) ** 2 for row in rows for one, mean in zip(row, season, strict=True))
    # The mean over few epochs repeats by chance a share of 1 / epochs.
    rest *= len(rows) / (len(rows) - 1)
    return (1 - rest / total if total > 0 else 0.0), math.sqrt(fmean(one**2 for one in season))


def validation_gap(run: LearningRun) -> Iterator[Verdict]:
    """Validation far from training from the first evaluation on."""
    train, valid = run.loss, run.valid_loss
    if min(len(train.values), len(valid.values)) < 3 or run.is_adversarial:
        return
    if (run.epoch_at(valid.steps[0]) or 0) > 2:
        return  # By then a model may know the training data by heart.
    first = max(fmean(train.share(0.0, 0.02).values), train.values[0])
    sampled = [*range(3), *range(3, len(valid.values), max(1, len(valid.values) // 20))]
    near = [(valid.values[at], fmean(_around(train, valid.steps[at]).values)) for at in sampled[: len(valid.values)]]
    gained = [first - of_train for _, of_train in near]
    # Of few examples validation is worse, too, but it gets better with training, and than that of an untrained model.
    best = min(valid.values)
    follows = valid.values[0] - best > 0.5 * gained[-1] and not best > UNTRAINED * first > 0
    is_worse = (
        not follows
        and gained[-1] > 0.3 * abs(first)
        and all(
            of_valid - of_train >= max(GAP_MIN * gain, 0.1 * abs(first), 4 * train.noise)
            for (of_valid, of_train), gain in zip(near, gained, strict=True)
        )
    )
    is_better = first > 0 and all(of_train - of_valid >= GAP_MIN * first for of_valid, of_train in near)
    if not (is_worse or is_better):
        return
    yield run.verdict(
        "validation_gap",
        f"validation is far {'worse' if is_worse else 'better'} than training from the first evaluation on",
        since=(valid, 0), evidence=[
            f"valid {run.name} {fmt.number(valid.values[0])}, then {fmt.number(median(valid.values))}; "
            f"train {fmt.number(near[0][1])}, now {fmt.number(near[-1][1])}"],
        fix="use the same preprocessing for both, and model.eval() for the evaluation; check how the data is split"
        if is_worse else "check that validation computes the same loss, over other examples than training",
    )  # fmt: skip


def evaluation_mode(run: LearningRun) -> Iterator[Verdict]:
    """A module that is called in training mode by a loop that evaluates."""
    seen = run.snapshot.evidence.evaluated
    if seen is None or not seen.layers:
        return
    yield DiagnosedRun.of(run.snapshot).verdict(
        "evaluation_mode", f"the model evaluates in training mode, with {seen.layers} as in training",
        line=Line.of(seen.user_frame, None),
        evidence=["called there without gradients, by a loop over a loader that does not train"],
        fix="call model.eval() before the evaluation, and model.train() after it",
    )  # fmt: skip


def core_loss(run: LearningRun) -> Iterator[Verdict]:
    """A core whose loss has another level than those of the others."""
    columns = [column for column in run.snapshot.core_columns if column.num_steps and len(column.means) > 1]
    at_first = max((abs(loss) for loss in columns[0].means if math.isfinite(loss)), default=0.0) if columns else 0.0
    columns = columns[len(columns) // 4 :]
    cores = len(columns[0].means) if columns else 0
    if run.is_adversarial or sum(column.num_steps for column in columns) < POINTS_MIN or len(columns) < 8:
        return
    rows = [column.means for column in columns if len(column.means) == cores and math.isfinite(sum(column.means))]
    if len(rows) < 8:
        return
    level = median(median(row) for row in rows)
    means = [fmean(of_core) for of_core in zip(*rows, strict=True)]
    middle = median(means)
    distances = [abs(one - middle) for one in means]
    core = max(range(cores), key=distances.__getitem__)
    apart = [row[core] - fmean([*row[:core], *row[core + 1 :]]) for row in rows]
    curve = Curve(range(len(apart)), apart)
    mean = fmean(apart)
    error = math.sqrt(fmean([(one - mean) ** 2 for one in apart]) / len(apart))
    usual = median([*distances[:core], *distances[core + 1 :]]) if cores > 3 else 0.0
    is_beyond = abs(mean) > CORE_DEVIATIONS * max(error, curve.level.error) and abs(mean) > 4 * usual
    if is_beyond and abs(mean) > max(CORE_APART * abs(level), CORE_APART_OF_FIRST * at_first):
        yield run.verdict(
            "core_loss",
            f"the loss of core {core} is {fmt.number(abs(mean))} {'above' if mean > 0 else 'below'} that of the others",
            since_step=columns[0].first_step,
            evidence=[f"median loss {fmt.number(level)}; {abs(mean) / max(error, 1e-12):.0f} standard errors"],
            fix="compare the share of the data of this core with the others: other classes, sources, or padding",
        )  # fmt: skip


def lr_scaling(run: LearningRun) -> Iterator[Verdict]:
    """A learning rate multiplied by the number of cores although the batch of all cores has not grown with it."""
    config, topology = run.snapshot.config, run.snapshot.topology
    data, optim = config.get("data"), config.get("optim")
    if not isinstance(data, dict) or not isinstance(optim, dict) or topology is None or topology.num_cores < 2:
        return
    batch, scaling = data.get("global_batch"), optim.get("lr_scaling", "linear")
    if not batch or scaling not in ("linear", "sqrt"):
        return
    cores, change = topology.num_cores, "optim.lr_scaling=none"
    factor = cores if scaling == "linear" else math.sqrt(cores)
    yield run.verdict(
        "lr_scaling",
        f"the learning rate is multiplied by {fmt.number(factor)} for {cores} cores, but the batch stays {batch}",
        evidence=[f"{batch // cores} examples per core; lr_scaling {scaling}; Goyal et al. (2017) scale by the batch"],
        fix=f"set {change}, or give data.batch_per_core so that the global batch grows with the cores", change=change,
    )  # fmt: skip


RULES = (
    divergence, learning_rate, gradient_norm, evaluation_mode, validation_gap, guessing, overfitting, plateau,
    constant_metric, epoch_jump, core_loss, lr_scaling,
)  # fmt: skip
"""Causes before what follows from them."""
_FOLLOWS: dict[RuleName, tuple[RuleName, ...]] = {
    "divergence": ("guessing", "plateau", "constant_metric", "gradient_norm"),
    "learning_rate": ("guessing", "plateau", "constant_metric", "gradient_norm"),
    "gradient_norm": ("guessing", "plateau", "constant_metric"),
    "evaluation_mode": ("validation_gap",),
    "validation_gap": ("overfitting",),
    "guessing": ("plateau", "constant_metric", "overfitting"),
}
"""What a cause also shows as."""
_FIXED = ("core_loss", "evaluation_mode")
"""Rules that lack something which does not come with more steps."""


def learning_verdicts(snapshot: Snapshot, run: LearningRun | None = None) -> list[Verdict]:
    """The verdicts on what a run learns, one for each cause."""
    run = run or LearningRun(snapshot)
    kept: list[Verdict] = []
    for verdict in (verdict for rule in RULES for verdict in rule(run)):
        cause = next((at for at, one in enumerate(kept) if verdict.rule in _FOLLOWS.get(one.rule, ())), None)
        if cause is None:
            kept.append(verdict)
        elif verdict.rule not in kept[cause].joined:
            joined, evidence = [*kept[cause].joined, verdict.rule], [*kept[cause].evidence, verdict.text]
            kept[cause] = replace(kept[cause], joined=joined, evidence=evidence)
    return kept


def unanswered(run: LearningRun, verdicts: Sequence[Verdict]) -> Iterator[Verdict]:
    """The rules that lack values for an answer, with what they need. A rule that found something is not among them."""
    answered, has_ended = {rule for verdict in verdicts for rule in verdict.rules}, run.snapshot.condition in ENDED
    needs: list[tuple[int, int, str, tuple[RuleName, ...]]] = [
        (len(run.fine_loss.values), POINTS_MIN, "values of the training loss", ("divergence", "guessing", "plateau")),
        (len(run.judged[2].values), EVALUATIONS_MIN, "evaluations", ("overfitting",)),
        (len(run.valid_loss.values), 3, "evaluations", ("validation_gap",)),
        (len(run.lr.values), 2, "learning rates", ("learning_rate",)),
        (len(run.norm.values), POINTS_MIN, "gradient norms", ("gradient_norm",)),
        (len(run.epoch_ends), 5, "epochs of equal length", ("epoch_jump",)),
        (max((len(curve.values) for _, _, curve in run.results), default=0), EVALUATIONS_MIN, "values of a result",
         ("constant_metric",)),
        (max((len(column.means) for column in run.snapshot.core_columns), default=0), 2, "cores", ("core_loss",)),
        (int(run.snapshot.evidence.evaluated is not None), 1, "evaluation seen from inside", ("evaluation_mode",)),
    ]  # fmt: skip
    for number, needed, what, rules in needs:
        for rule in rules:
            if number < needed and rule not in answered:
                may_come = not has_ended and (number > 0 or rule != "gradient_norm") and rule not in _FIXED
                text = f"{number} of the {needed} {what} that it needs" if number else f"no {what}"
                yield Verdict(rule=rule, status="not enough data yet" if may_come else "not available", text=text)


def learning_version(snapshot: Snapshot) -> object:
    """What changes with the curves of a run: verdicts on the same version are the same."""
    newest = snapshot.loss[-1] if snapshot.loss else None
    logged = sum(view.num_values + view.num_bad for view in snapshot.logged)
    steps = (snapshot.steps, newest.last_step if newest is not None else 0, len(snapshot.epochs))
    further = snapshot.evidence.evaluated, len(snapshot.checkpoints), snapshot.condition in ENDED, snapshot.is_behind
    return snapshot.run, steps, logged, further
