"""Optimizers and learning-rate schedules of the configuration. An update is the same program in every step.

The runtime makes each Python number an input of the program, except 0 and 1, which become constants, and it makes two
equal numbers one input. So an update with Python numbers is another program at any step where a changing number equals
0, 1 or another number of the program: Adam's second correction equals its `beta2` at step 6,212, and a learning rate
of 0 is a constant. Here all numbers that depend on the step are sent to the device in one small tensor. State and
groups are those of `torch.optim`, so that checkpoints and schedulers work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

from engine.task import Plan
from tputui.config import RunConfig

MIN_LR = 1e-30
"""Used instead of 0, to avoid a division by 0."""
Group = dict[str, Any]
Tensors = list[Tensor] | tuple[Tensor, ...]
State = dict[str, Any]
Send = Callable[[list[Tensor]], list[Tensor]]
"""Moves host tensors to the device, replicated on every core, in one transfer."""


def optimizer(config: RunConfig, parameters: Iterable[torch.nn.Parameter]) -> Optimizer:
    """The optimizer of the configuration, at the scaled learning rate. Parameters must be on the device."""
    options, lr = config.optim, config.scaled_lr
    decay, momentum = options.weight_decay, options.used_momentum
    if options.name == "sgd":
        return SGD(parameters, lr=lr, momentum=momentum, weight_decay=decay)
    if options.name == "rmsprop":
        return RMSprop(parameters, lr=lr, alpha=options.alpha, eps=options.eps, momentum=momentum, weight_decay=decay)
    cls = AdamW if options.name == "adamw" else Adam
    return cls(parameters, lr=lr, betas=options.betas, eps=options.eps, weight_decay=decay)


def learning_rate(plan: Plan, epoch: int, batch: int) -> float:
    """Learning rate of the update that batch `batch` (from 0) of epoch `epoch` (from 1) belongs to.

    A pure function of the position, so that a resumed run continues exactly. A warm-up of N updates rises linearly
    from 1/N of the scheduled rate at the first update to the full rate at the Nth. A cosine schedule starts after the
    warm-up at the full rate, and would reach `min_lr` at the update after the last.
    """
    config, optim = plan.config, plan.config.optim
    full, least = config.scaled_lr, config.scaled_min_lr
    per_epoch = plan.steps_per_epoch // optim.accumulate
    done = (epoch - 1) * per_epoch + batch // optim.accumulate
    warm_up = optim.warmup_steps or round(optim.warmup_epochs * per_epoch)
    rise = min(1.0, (done + 1) / warm_up) if warm_up else 1.0
    if optim.used_schedule == "step" and optim.step_size is not None:
        return rise * max(least, full * optim.gamma ** ((epoch - 1) // optim.step_size))
    if optim.used_schedule == "cosine" and done >= warm_up:
        part = min(1.0, (done - warm_up) / max(1, config.epochs * per_epoch - warm_up))
        return least + (full - least) * (1 + math.cos(math.pi * part)) / 2
    return rise * full


def covers(of: Optimizer) -> bool:
    """Whether `update` can replace the optimizer's own `step`: torch's Adam, AdamW, SGD and RMSprop over float32
    parameters, without `capturable`, `differentiable`, `fused`, `dampening` and numbers that are tensors."""
    return type(of) in _RULES and all(_is_plain(group) for group in of.param_groups)


@contextmanager
def without_zero(of: Optimizer) -> Iterator[None]:
    """Inside this context a learning rate of 0, which would be a constant of the program, is `MIN_LR` instead."""
    idle = [group for group in of.param_groups if not isinstance(group.get("lr"), Tensor) and group.get("lr") == 0]
    for group in idle:
        group["lr"] = MIN_LR
    try:
        yield
    finally:
        for group in idle:
            group["lr"] = 0.0


@torch.no_grad()
def update(of: Optimizer, send: Send) -> None:
    """Traces the optimizer's `step`, equal to torch's own up to float32 rounding. `covers(of)` must be true.

    Only `copy_` writes in place: any other in-place operation is traced twice, the second time without data, which is
    most of the time that torch's own step takes to trace.
    """
    rule = _RULES[type(of)]
    groups = [(group, [p for p in group["params"] if p.grad is not None]) for group in of.param_groups]
    for group, parameters in groups:
        _begin(of, parameters, rule.state_names(group), send)
    bundles = [bundle for group, parameters in groups for bundle in _bundles(of, group, parameters)]
    if not bundles:
        return
    numbers = [rule.numbers(bundle.group, bundle.step) for bundle in bundles]
    (sent,) = send([torch.tensor(numbers, dtype=torch.float32)])
    for bundle, row in zip(bundles, sent.unbind(), strict=True):
        rule.trace(bundle, row.unbind())


class _Bundle(NamedTuple):
    """Parameters of one group with the same number of updates."""

    group: Group
    step: int
    """Number of this update, from 1; 0 if the optimizer does not count updates."""
    parameters: list[Tensor]
    gradients: Tensors
    states: list[State]

    def state(self, name: str) -> list[Tensor]:
        return [state[name] for state in self.states]


class _Rule(NamedTuple):
    state_names: Callable[[Group], list[str]]
    """Names in the state of a parameter: `step` is a count, anything else a tensor of the parameter's shape."""
    numbers: Callable[[Group, int], list[float]]
    """The numbers that depend on the step: learning rates and corrections."""
    trace: Callable[[_Bundle, Tensors], None]


def _begin(of: Optimizer, parameters: list[Tensor], names: list[str], send: Send) -> None:
    """Creates missing state. Zeros are sent to the device, since traced zeros would be constants, and the first step
    another program."""
    missing = [(of.state[p], name, p) for p in parameters for name in names if of.state[p].get(name) is None]
    empty = [(state, name, parameter) for state, name, parameter in missing if name != "step"]
    for state, name, _ in missing:
        if name == "step":
            state[name] = torch.tensor(0.0)
    sent = send([torch.zeros(parameter.shape) for _, _, parameter in empty]) if empty else []
    for (state, name, _), zeros in zip(empty, sent, strict=True):
        state[name] = zeros


def _bundles(of: Optimizer, group: Group, parameters: list[Tensor]) -> list[_Bundle]:
    """The parameters by their number of updates, including this one."""
    counts = [of.state[parameter]["step"] for parameter in parameters if "step" in of.state[parameter]]
    if counts:
        # Added as one tensor: a number would become a tensor for each parameter.
        torch._foreach_add_(counts, torch.tensor(1.0), alpha=1.0)
    by_step: dict[int, list[Tensor]] = {}
    for index, parameter in enumerate(parameters):
        by_step.setdefault(int(counts[index]) if counts else 0, []).append(parameter)
    return [
        _Bundle(group, step, members, _gradients(group, members), [of.state[member] for member in members])
        for step, members in by_step.items()
    ]


def _gradients(group: Group, parameters: list[Tensor]) -> Tensors:
    """The gradients, including weight decay unless it is decoupled."""
    gradients: Tensors = [p.grad for p in parameters if p.grad is not None]
    if group["maximize"]:
        gradients = torch._foreach_neg(gradients)
    if group["weight_decay"] and not group.get("decoupled_weight_decay"):
        gradients = torch._foreach_add(gradients, parameters, alpha=group["weight_decay"])
    return gradients


def _adam_state(group: Group) -> list[str]:
    return ["step", "exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]


def _adam_numbers(group: Group, step: int) -> list[float]:
    lr, (beta1, beta2) = group["lr"], group["betas"]
    by_lr = (1 - beta1**step) / -max(lr, MIN_LR)
    return [by_lr / (1 - beta2**step) ** 0.5, by_lr * group["eps"], 1 - lr * group["weight_decay"]]


def _trace_adam(bundle: _Bundle, numbers: Tensors) -> None:
    slope, offset, decay = numbers
    group, parameters, gradients = bundle.group, bundle.parameters, bundle.gradients
    beta1, beta2 = group["betas"]
    if group["weight_decay"] and group["decoupled_weight_decay"]:
        parameters = list(torch._foreach_mul(parameters, decay))
    means = torch._foreach_lerp(bundle.state("exp_avg"), gradients, 1 - beta1)
    squares = torch._foreach_mul(bundle.state("exp_avg_sq"), beta2)
    squares = torch._foreach_addcmul(squares, gradients, gradients, 1 - beta2)
    torch._foreach_copy_(bundle.state("exp_avg"), means)
    torch._foreach_copy_(bundle.state("exp_avg_sq"), squares)
    if group["amsgrad"]:
        squares = torch._foreach_maximum(bundle.state("max_exp_avg_sq"), squares)
        torch._foreach_copy_(bundle.state("max_exp_avg_sq"), squares)
    torch._foreach_copy_(bundle.parameters, _stepped(parameters, means, squares, slope, offset))


def _sgd_state(group: Group) -> list[str]:
    return ["momentum_buffer"] if group["momentum"] else []


def _sgd_numbers(group: Group, step: int) -> list[float]:
    return [-group["lr"]]


def _trace_sgd(bundle: _Bundle, numbers: Tensors) -> None:
    (step_size,) = numbers
    group, parameters, directions = bundle.group, bundle.parameters, bundle.gradients
    if group["momentum"]:
        gradients = bundle.gradients
        buffers = torch._foreach_mul(bundle.state("momentum_buffer"), group["momentum"])
        directions = torch._foreach_add(buffers, gradients)
        torch._foreach_copy_(bundle.state("momentum_buffer"), directions)
        if group["nesterov"]:
            directions = torch._foreach_add(gradients, directions, alpha=group["momentum"])
    torch._foreach_copy_(parameters, torch._foreach_add(parameters, torch._foreach_mul(directions, step_size)))


def _rmsprop_state(group: Group) -> list[str]:
    momentum = ["momentum_buffer"] if group["momentum"] > 0 else []
    return ["step", "square_avg", *momentum, *(["grad_avg"] if group["centered"] else [])]


def _rmsprop_numbers(group: Group, step: int) -> list[float]:
    by_lr = 1 / -max(group["lr"], MIN_LR)
    return [-group["lr"], by_lr, by_lr * group["eps"]]


def _trace_rmsprop(bundle: _Bundle, numbers: Tensors) -> None:
    step_size, slope, offset = numbers
    group, parameters, gradients = bundle.group, bundle.parameters, bundle.gradients
    alpha = group["alpha"]
    squares = torch._foreach_mul(bundle.state("square_avg"), alpha)
    squares = torch._foreach_addcmul(squares, gradients, gradients, 1 - alpha)
    torch._foreach_copy_(bundle.state("square_avg"), squares)
    if group["centered"]:
        means = torch._foreach_lerp(bundle.state("grad_avg"), gradients, 1 - alpha)
        torch._foreach_copy_(bundle.state("grad_avg"), means)
        squares = torch._foreach_addcmul(squares, means, means, -1)
    if group["momentum"] > 0:
        scales = torch._foreach_add(torch._foreach_sqrt(squares), group["eps"])
        buffers = torch._foreach_mul(bundle.state("momentum_buffer"), group["momentum"])
        buffers = torch._foreach_addcdiv(buffers, gradients, scales)
        torch._foreach_copy_(bundle.state("momentum_buffer"), buffers)
        torch._foreach_copy_(parameters, torch._foreach_add(parameters, torch._foreach_mul(buffers, step_size)))
    else:
        torch._foreach_copy_(parameters, _stepped(parameters, gradients, squares, slope, offset))


def _stepped(parameters: Tensors, directions: Tensors, squares: Tensors, slope: Tensor, offset: Tensor) -> Tensors:
    """`parameters + directions / (slope * sqrt(squares) + offset)`."""
    roots = torch._foreach_mul(torch._foreach_sqrt(squares), slope)
    return torch._foreach_addcdiv(parameters, directions, [root + offset for root in roots])


def _is_plain(group: Group) -> bool:
    odd = any(group.get(name) for name in ("capturable", "differentiable", "fused", "dampening"))
    numbers = (group["lr"], *group.get("betas", ()))
    return (
        not odd
        and not any(isinstance(number, Tensor) for number in numbers)
        and all(parameter.dtype == torch.float32 for parameter in group["params"])
    )


_RULES: dict[type[Optimizer], _Rule] = {
    Adam: _Rule(_adam_state, _adam_numbers, _trace_adam),
    AdamW: _Rule(_adam_state, _adam_numbers, _trace_adam),
    SGD: _Rule(_sgd_state, _sgd_numbers, _trace_sgd),
    RMSprop: _Rule(_rmsprop_state, _rmsprop_numbers, _trace_rmsprop),
}
