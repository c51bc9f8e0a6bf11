"""Writes docs/diagnosis.md: each rule of the diagnosis with a program or a curve that shows it, and what is printed.

`PYTHONPATH=. python docs/make_diagnosis.py` writes the page from the programs in `tests/faulty_programs` and the stored
results. With `--measure RULE...` it first runs the programs of these rules (`all`: of every rule), under `tputui run`
and with the fix, and stores what was printed and measured in `docs/diagnosis_results.json`.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_args

from tests.diagnosis.curves import snapshot
from tests.diagnosis.smallest_curves import SMALLEST, shown
from tputui.diagnosis.learning_rules import learning_verdicts
from tputui.diagnosis.verdict import LearningRule, RuleName
from tputui.text import verdict_lines
from tputui.text.verdict_lines import LOOKS_FOR, TITLES

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("diagnosis.md")
RESULTS = Path(__file__).with_name("diagnosis_results.json")
PROGRAMS = ROOT / "tests" / "faulty_programs"
WIDTH = 120
REPEATS = 4
"""Runs of each version, alternating; the page shows the median."""

Edits = tuple[tuple[str, str], ...]


class Entry(NamedTuple):
    """A rule on the page."""

    meaning: str
    program: str = ""
    """Below `tests/faulty_programs`; empty if only a TPU shows it, or a curve in `smallest_curves.py`."""
    edits: Edits = ()
    """The fix: texts of the program with their replacements."""
    steps: int = 1
    """Factor on the number of steps while the pace is measured; 0 if it is not."""
    note: str = ""
    """What the measurement leaves open."""
    live_s: float = 0.0
    """Diagnosed after so many seconds, while it runs."""


_NEEDS_TPU = "No program shows it without a TPU; the rule is tested with made-up readings."
_ON_TPU = "Only a TPU can show the gain: a CPU does not pad."
ENTRIES: dict[RuleName, Entry] = {
    "recompile": Entry(
        "A program compiles again and again after warm-up. A TPU program takes from seconds to minutes to compile, and "
        "the device is idle meanwhile. The verdict names the sync that compiled and the input whose shape or type "
        "differs; if no input does, a few steps are compared operation by operation, and the line is that of the call "
        "of torch that takes the constant, such as `x ** exponent`, `layer_norm(eps=...)` or a slice. Compilations of "
        "the first two runs of a program are warm-up. A later one is a hint as long as it is "
        "the first for its inputs and these have at most four sizes, such as buckets of lengths, a smaller last batch "
        "or a batch of the evaluation. It is a finding from the fifth size on, if a program compiles again for the "
        "same inputs, or if a number or anything else but a size changes for the third time. JAX compiles each "
        "operation outside of a compiled function by itself: all programs at a line have one verdict, with their cost "
        "together. So have lines of a file that compile again for the same changes of sizes or numbers, at the first. "
        "If the changed inputs of torch_xla have the shapes of the newest batch of a `DataLoader` or `MpDeviceLoader` "
        "in a command of `tputui run --`, and had those of an earlier one, the cause is the loader: all programs that "
        "compile for it have one verdict, at the line that made it, or at the collate function if lengths change.",
        "torch_xla/roll_by_step.py",
        (
            (
                "    x = torch.roll(x, step, dims=1)  # fault: recompile\n",
                "    places = (torch.arange(x.shape[1]) - step) % x.shape[1]\n"
                "    x = x.index_select(1, places.to(net.device))\n",
            ),
        ),
        steps=2,
    ),
    "sync": Entry(
        "The host reads a value of the device: `.item()`, `float()`, `int()`, `bool()` and `if`, `print`, an f-string, "
        "`.cpu()`, `.numpy()`, `.tolist()`. It waits until the device has computed the value, and "
        "the device then waits until the host has traced the next step. The seconds lost are the host time that no "
        "longer overlaps with the device; one read per report is not counted. On CPU cores, which host and device "
        "share, neither a loss nor a gain is predicted, and a read in most steps that costs little is a hint from 50 "
        "steps on. A callback of JAX is reported from 5 % of the wall time on. In a loop without `torch_xla.sync()`, "
        "where only the read ends a step, the verdict is that on the recompiles.",
        "torch_xla/accuracy_each_step.py",
        (
            ("import torch_xla\n", "import torch\nimport torch_xla\n"),
            ("correct = seen = 0\n", "correct = torch.zeros((), device=net.device)\nseen = 0\n"),
            ("(logits.argmax(1) == y).sum().item()  # fault: sync\n", "(logits.argmax(1) == y).sum()\n"),
            ("correct / seen", "correct.item() / seen"),
        ),
        steps=8,
        note="On a CPU, device and host share the cores, so that little can overlap; only a TPU can show the gain.",
    ),
    "fallback": Entry(
        "torch_xla has no implementation of an operation for the device, so it runs on the host: the device computes "
        "its inputs, they are copied to the host, and the result is copied back. If the shape of the result depends on "
        "values, as that of `x[mask]`, `nonzero`, `masked_select` and `unique`, what takes it compiles again for each "
        "shape. That is one verdict, a recompile at the line of the operation, with the cost of both.",
        "torch_xla/histogram.py",
        (
            (
                "    counts = torch.histc(logits.detach(), bins=10, min=-3, max=3)  # fault: fallback\n",
                "    bins = ((logits.detach() + 3) / 0.6).long().clamp(0, 9)\n"
                "    counts = torch.nn.functional.one_hot(bins.flatten(), 10).sum(0)\n",
            ),
        ),
        steps=15,
    ),
    "graph_break": Entry(
        "A line inside a function that `torch.compile` compiles cannot be part of its program, so that the function "
        "becomes several programs with Python in between. If the line passes on a number that changes, the rest of the "
        "function is compiled again for each, which is a part of the verdict.",
        "torch_compile/item_breaks_graph.py",
        (
            (
                "    if loss.item() > 100:  # fault: graph_break\n        loss = loss / 2\n",
                "    loss = torch.where(loss > 100, loss / 2, loss)\n",
            ),
        ),
        steps=0,
        note="The program uses the backend `eager`, which has nothing to gain; with a real one each part is a program.",
    ),
    "compile_limit": Entry(
        "`torch.compile` gave up: a function was compiled for so many different inputs that it now runs as Python. "
        "The compilations before are a part of the verdict.",
        "torch_compile/recompile_limit.py",
        (
            ("torch.ones(16 + step, 8))  # fault: compile_limit", "padded(torch.ones(16 + step, 8)))"),
            (
                "weights = torch.ones(8, 4)\n",
                "def padded(batch):\n    return torch.nn.functional.pad(batch, (0, 0, 0, 32 - len(batch)))\n\n\n"
                "weights = torch.ones(8, 4)\n",
            ),
        ),
        steps=0,
        note="The program uses the backend `eager`, which has nothing to gain. A loss needs a mask for the padding.",
    ),
    "input": Entry(
        'The steps wait for their batch. In a script this is the time in `run.phase("data")`; in runs of '
        "configurations it is measured, with the stage of the loader that takes longest. Shown from 10 % of the step "
        "on a TPU and from 20 % on virtual cores, which share the host's CPUs with the loader.",
        "torch_xla/slow_dataset.py",
        (
            (
                "class Recordings(Dataset):\n    def __len__",
                "class Recordings(Dataset):\n    def __init__(self):\n"
                "        self.parsed = [self.parse(index) for index in range(len(self))]\n\n"
                "    def __getitem__(self, index):\n        return self.parsed[index]\n\n    def __len__",
            ),
            ("    def __getitem__(self, index):\n        text", "    def parse(self, index):\n        text"),
            ("net = Net()\n", "net = Net()\ndata = Recordings()\n"),
            ("DataLoader(Recordings(), ", "DataLoader(data, "),
        ),
    ),
    "tracing": Entry(
        "The host takes as long to trace a step as the step takes, so the device waits for the host. Shown if tracing "
        'takes 90 % of the steps: in runs of configurations, and in scripts that report `run.phase("trace")` and '
        '`run.phase("execute")`.',
        "torch_xla/python_loop.py",
        (("        distance = (state", "    distance = (state"),),
        steps=2,
        note="Only the last distance is used, so one line less in the loop saves most of the tracing. Other fixes "
        "trace the step once: `torch_xla.compile` for the step, or `torch_xla.experimental.scan` over time steps.",
    ),
    "slow_steps": Entry(
        "Every Nth step takes longer than the others, by 5 % of the time of all or more. The newest 4,096 steps are "
        "timed one by one, as far as they have at most 1,024 in a report, without evaluations, saves and reports. A "
        "period is named only if slow steps at random would show such a one with a probability below one in a million: "
        "of 320 random series with pauses, bursts and drift none has one. If the wait for batches explains most of it, "
        "the verdict says so, and is a part of that on the input if there is one. Otherwise it names what is as "
        "frequent: a save, an epoch, a logged value, a line that reads. With torch_xla or JAX, where the host runs "
        "ahead of the device, a rhythm of unknown cause is a hint.",
        "long/weights_every_25.py",
        (
            (
                "        weights = sorted(model.weight.flatten().tolist())\n"
                "        quantiles = [weights[len(weights) * part // 10] for part in range(10)]\n",
                "        quantiles = model.weight.detach().quantile(torch.arange(10) / 10).tolist()\n",
            ),
        ),
        steps=0,
    ),
    "garbage": Entry(
        "Python's garbage collector takes 5 % of the time of the steps or more, by `gc.callbacks` of a process that "
        "reports steps, such as those of the engine. A collection of the oldest generation traverses every object in "
        "memory, such as those of a data set of lists and dicts. Two calls of a function per collection are what it "
        "costs.",
        "long/collected_examples.py",
        (("model = torch.nn.Linear(64, 1)\n", "gc.collect()\ngc.freeze()\nmodel = torch.nn.Linear(64, 1)\n"),),
        steps=0,
    ),
    "compile_cache": Entry(
        "Programs compiled for a minute or more in warm-up. Without a persistent cache the seconds are what the next "
        "start would save; if there is one that did not have them, it is a hint. torch_xla counts "
        "`PersistentCacheMiss` for it, and JAX reports hits and misses as events.",
        note="No program of the suite compiles for a minute; the rule is tested with made-up compilations.",
    ),
    "donation": Entry(
        "A program of JAX may overwrite an input (`donate_argnums`), but no result has its type and shape, so that its "
        "memory is not reused. The inputs are compared when the program is lowered. A hint, from 1 KiB on.",
        "jax/donated_batch.py",
        (("donate_argnums=(0, 1)", "donate_argnums=0"),),
        steps=0,
    ),
    "replicated": Entry(
        "A program of JAX runs on several devices, and each has a whole copy of all of its inputs, so that all compute "
        "the same; or of 1 GiB or more of inputs while others are split. A hint. The inputs and their sharding are "
        "read when the program is compiled.",
        "jax/whole_batch.py",
        (
            ("PartitionSpec())\n", 'PartitionSpec())\nsplit = NamedSharding(mesh, PartitionSpec("data"))\n'),
            ("np.ones((128, 256), np.float32), whole)", "np.ones((128, 256), np.float32), split)"),
        ),
        steps=0,
    ),
    "op_by_op": Entry(
        "Operations of JAX outside of a compiled function, 10 or more in a step: each is a program of its own, which "
        "the host starts one by one, and nothing is fused. JAX runs them from C++ without a call of Python, so a few "
        "steps are counted, once: a second after the newest compilation the line of the thread is sampled 50 times, "
        "then JAX's caches of calls are kept empty for 12 steps, which are calls of the compiled function that is "
        "called most often, and for at most 2,000 calls or 3 seconds. These counts are exact, and nothing compiles "
        "again. The share of the time is that of the samples: a finding from 5 % on, else a hint. A line that calls a "
        "compiled function, too, has no share. The same is done 0.2 s after the newest compilation, sampled for 0.2 s, "
        "and reported if the program ends before the rest.",
        "jax/op_by_op.py",
        (("def update(", "@jax.jit\ndef update("),),
        steps=0,
        note="Steps per second: 7.8 to 11.6 times as many after the fix, in three pairs of runs.",
    ),
    "device_put": Entry(
        "In half of the steps or more a line moves an array that is on the device already to another sharding or "
        "device, by `jax.device_put` or as an input of a function that needs it elsewhere; or it copies an array of "
        "the host to the device that has the same values as in most other steps, by `jax.device_put`, `jnp.asarray` or "
        "an operation. Passing a batch of numpy to a compiled function is no fault, nor is putting another batch in "
        "each step. Counted in the same steps as operations; from 1 KiB a step on. A move is a finding from 5 % of "
        "the samples on, else a hint.",
        "jax/moved_each_step.py",
        (
            (
                "steps, end = 0, math.inf\n",
                "shares = jax.device_put(batch, split)\n"
                "labels = jax.device_put(np.ones((1024, 4), np.float32), split)\nsteps, end = 0, math.inf\n",
            ),
            ("    shares = jax.device_put(batch, split)  # fault: device_put\n", ""),
            ("    labels = jax.device_put(np.ones((1024, 4), np.float32), split)  # hint: device_put\n", ""),
        ),
        steps=0,
        note="Steps per second: 1.5 to 5.4 times as many after both fixes, in three pairs of runs, on eight devices of "
        "a CPU. The copy of equal values is always a hint, since a benchmark may mean it.",
    ),
    "extra_execution": Entry(
        "A step runs more programs than it needs: it calls `torch_xla.sync()` more than once, or reads a value before "
        "the sync, so that the runtime computes a part of the step by itself. Each program costs a dispatch, and "
        "values between them are written to memory.",
        "torch_xla/sync_after_backward.py",
        (("    net.loss(x, y).backward()\n    torch_xla.sync()\n", "    net.loss(x, y).backward()\n"),),
        steps=15,
    ),
    "padding": Entry(
        "Evaluation pads its last batch to the size of the others, so that it needs one program. With few examples "
        "most of it is padding. Shown if a quarter or more of it is, and if that costs 2 % of the wall time.",
        "configs/padding.toml",
        (("valid_fraction = 0.0375", "valid_fraction = 0.035"),),
        steps=0,
        note="The 62 examples that are left fit into one batch, so the evaluation takes half of the time.",
    ),
    "batch_multiple": Entry(
        "A TPU processes 8 rows at a time, so that a batch per core is padded to a multiple of 8.",
        "configs/batch_of_12.toml",
        (("batch_per_core = 12", "batch_per_core = 16"),),
        steps=0,
        note=_ON_TPU,
    ),
    "feature_multiple": Entry(
        "The matrix unit of a TPU multiplies tiles of 128 columns, so that other sizes are padded. Off a TPU this is a "
        "hint.",
        "torch_xla/odd_features.py",
        (("129", "128"),),
        steps=0,
        note=_ON_TPU,
    ),
    "precision": Entry(
        "The matrix unit of a TPU multiplies bfloat16. Training in float32 moves twice the bytes. Always a hint, since "
        "it may change what the model learns.",
        "torch_xla/odd_features.py",
        (
            (
                "    net.update(net.loss(x, y))\n",
                '    with torch.autocast("xla", dtype=torch.bfloat16):\n'
                "        loss = net.loss(x, y)\n    net.update(loss)\n",
            ),
        ),
        steps=0,
        note="Only a TPU can show the gain: on a CPU, bfloat16 is converted to float32.",
    ),
    "out_of_memory": Entry(
        "The run ended because a program, or one of its buffers, did not fit into the memory of the device. Both texts "
        "of XLA are read: that of a program at compile time, with its largest buffers, and that of an allocation.",
        "torch_xla/large_batch.py",
        (("1 << 38", "1 << 18"),),
        steps=0,
        note="On a TPU the error lists the largest buffers with their lines.",
    ),
    "memory_trend": Entry(
        "The memory of the device or of the host has grown steadily for a minute or more, and would be exhausted "
        "before the end of the run. Shown while the run lasts.",
        "long/kept_outputs.py",
        (("        kept.append(torch.ones(2_000_000 // 4))\n", "        kept[:] = [torch.ones(8_000_000 // 4)]\n"),),
        steps=0,
        live_s=150.0,
    ),
    "device_idle": Entry(
        "By the duty cycle that the TPU runtime reports, the cores compute nothing for more than 10 % of the time of "
        "training (XProf's bound), as the median of at least 6 samples, and no rule about the host has found why. If "
        "the input or tracing is slow, the idle time is evidence there.",
        note=_NEEDS_TPU,
    ),
    "throttling": Entry(
        "A chip runs slower than it could, by the throttle score that the TPU runtime reports: 1 to 10 mean 10 to "
        "100 %. Few versions of libtpu report it.",
        note=_NEEDS_TPU,
    ),
    "link_health": Entry(
        "A link to another chip has a problem, by the score that the TPU runtime reports. 1 to 5 is transient and a "
        "hint, 6 to 9 persistent, and 10 not usable. Few versions of libtpu report it.",
        note=_NEEDS_TPU,
    ),
    "slow_host": Entry(
        "In every step the other hosts wait for one of them. Its own time of a step, computing and waiting for "
        "batches, exceeds that of the median host by more than 5 % of a step and by more than three median absolute "
        "deviations, in at least 20 steps. The bounds are tputui's own: of 256 simulated hosts whose times scatter by "
        "3 % none is named in 100 runs, and one that is 10 % slower is named in each. Hosts whose exchange is inside a "
        "program on the TPU report waiting for batches alone.",
        note="It needs several hosts, so no program of one process shows it.",
    ),
    "evaluation_mode": Entry(
        "A module with Dropout or BatchNorm is in training mode while a loop of the script evaluates with it: the loop "
        "calls it without gradients for the batches of a loader that does not train. Evaluation is then noisy and "
        "worse, and its batches change the statistics of BatchNorm. Seen from inside the process, under `tputui run "
        "--`: the curves of such a run alone look like those of a healthy one.",
        note="Missing before `for batch in valid_loader:` is `model.eval()`. Not seen are loops that only call a "
        "function which calls the module, comprehensions, loops that switch gradients off inside, and layers of other "
        "libraries.",
    ),
    "divergence": Entry(
        "The training loss has lost half or more of what it had gained, by more than six times its noise, and does "
        "not return; or it jumped to a multiple of its first value and never got below it; or its newest value is "
        "NaN or infinite. A single spike from which the loss recovers is none. Losses of adversarial and "
        "reinforcement learning, by the names of the metrics, are not judged."
    ),
    "learning_rate": Entry(
        "The learning rate is 0 in the newest quarter of the reports or more, or the validation loss, or the mean "
        "training loss of epochs over as many examples, is equal in all epochs within the rounding of float32: the "
        "weights do not change. A schedule that ends at 0 is healthy."
    ),
    "guessing": Entry(
        "The training loss stays within 1.5 % of ln k for k classes, that of a guess, or no validation loss is "
        "better. k is the number of classes in the configuration; without one, a few usual numbers are tried, and "
        "the loss must have begun near ln k and be flat."
    ),
    "overfitting": Entry(
        "The validation loss is above its best by more than four times its noise, by 8 % (Prechelt 1998 stops at 5 "
        "%) and by 12 % of what was gained before, over three evaluations or more, while the training loss has "
        "fallen. Five evaluations are needed. A run that was stopped early is not reported."
    ),
    "plateau": Entry(
        "The loss fell, by less than 55 %, and then shows no trend over 60 % of the run at a constant learning rate:"
        " how far it may still fall is bounded by its noise. A lower loss is taken for the floor of the data. "
        "Without a recorded learning rate this is a hint, and a run of one epoch is not judged."
    ),
    "gradient_norm": Entry(
        "The reported gradient norm is 0 for half of the run, or ten times as large as at the beginning and still "
        "grows beyond its noise."
    ),
    "constant_metric": Entry(
        "A loss or a result such as an accuracy is the same in five evaluations or 20 training values, and is not "
        "the best possible one."
    ),
    "epoch_jump": Entry(
        "The loss jumps up where epochs begin, in nine of ten of them, or takes the same course in each, and what "
        "repeats is most of its variation (strength of seasonality from 0.64, Wang et al. 2006). Restarts of the "
        "learning rate and the stairs down of examples learned by heart are healthy."
    ),
    "validation_gap": Entry(
        "From the first evaluation on, validation is further from training than half of what training has gained. "
        "Label smoothing, dropout and mixup, which make validation better, stay below that. One that gets better "
        "with training is that of few examples, unless it is always worse than an untrained model."
    ),
    "core_loss": Entry(
        "The mean loss of a core differs from that of the others by six standard errors and by a tenth."
    ),
    "lr_scaling": Entry(
        "`data.global_batch` is fixed, so more cores have smaller shares of the same batch, but `optim.lr_scaling` "
        "multiplies the learning rate by the number of cores."
    ),
}


def page() -> str:
    """The page, from the programs and the stored results."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    parts = [_HEAD.format(machine=results.get("machine", "not measured"))]
    parts += [
        _section(rule, ENTRIES[rule], results.get("rules", {}).get(rule, {}))
        for rule in get_args(RuleName)
        if rule not in get_args(LearningRule)
    ]
    parts += [_HEAD_OF_LEARNING, *map(_learning_section, get_args(LearningRule))]
    parts.append(_programs())
    return "\n".join(parts)


_HEAD = """# Diagnosis

Why a run is slow, or does [not learn](#learning), rule by rule: what it means, a small program that shows it, what
`tputui doctor RUN` prints about that program, and the fix with the pace before and after. Generated by
`PYTHONPATH=. python docs/make_diagnosis.py`.

The same verdicts are in the monitor, in `tputui show`, at the end of `tputui run --no-ui` and in comparisons. A verdict
is *found* if it costs time or ended the run; a *hint* is worth a try, but its cost cannot be measured where the program
ran.

Measured on: {machine}. The programs are tiny, so the factors are those of a step of a few milliseconds. All share
`tests/faulty_programs/torch_xla/small.py`: a network of two layers and random batches.
"""


_HEAD_OF_LEARNING = """# Learning

Why a run does not learn, from its curves alone, whatever reported them: configurations, `tputui.start`, hooks, logs and
TensorBoard. The noise of a curve is estimated from its second differences, never assumed. Each verdict says since when,
and names the checkpoint to keep if one was saved. `--alert overfitting` raises an alert when the rule finds something.
`tests/diagnosis/test_learning_rules.py` scores the rules on healthy curves and on planted faults. No gain is measured
for them: what a fix changes is the result of the training, not its pace.
"""


def _learning_section(rule: LearningRule) -> str:
    """A rule about learning with the smallest curve that shows it, and what `tputui doctor` prints about it."""
    if rule not in SMALLEST:
        return _section(rule, ENTRIES[rule], {})
    run, meaning = SMALLEST[rule], ENTRIES[rule].meaning
    verdicts = [verdict for verdict in learning_verdicts(snapshot(run)) if verdict.rule == rule]
    curve = "\n".join(textwrap.fill(f"{name}: {values}", WIDTH, subsequent_indent="  ") for name, values in shown(run))
    config = f"\nconfiguration: {json.dumps(dict(run.config))}" if run.config else ""
    epochs = f", epochs of {run.epoch_steps} steps" if run.epoch_steps else ""
    printed = "\n".join(verdict_lines.blocks(verdicts))
    return (
        f"## {TITLES[rule]} (`{rule}`)\n\n{_looks_for(rule)}\n\n{textwrap.fill(meaning, WIDTH)}\n\n"
        f"A curve that shows it{epochs}:\n\n```text\n{curve}{config}\n```\n\n"
        f"`tputui doctor` prints:\n\n```text\n{printed}\n```\n"
    )


def _section(rule: RuleName, entry: Entry, result: dict[str, Any]) -> str:
    if not entry.program:
        texts = (textwrap.fill(entry.meaning, WIDTH), textwrap.fill(entry.note, WIDTH))
        return "\n\n".join([f"## {TITLES[rule]} (`{rule}`)", _looks_for(rule), *texts]) + "\n"
    path = PROGRAMS / entry.program
    text = path.read_text()
    language = "toml" if path.suffix == ".toml" else "python"
    lines = [f"## {TITLES[rule]} (`{rule}`)\n", f"{_looks_for(rule)}\n", f"{textwrap.fill(entry.meaning, WIDTH)}\n"]
    lines.append(f"`tests/faulty_programs/{entry.program}`:\n\n```{language}\n{text.rstrip()}\n```\n")
    if printed := result.get("printed"):
        lines.append(f"`tputui doctor` prints:\n\n```text\n{printed}\n```\n")
    else:
        lines.append("Its output is not recorded yet: run the script with `--measure`.\n")
    if entry.edits:
        lines.append(f"The fix:\n\n```diff\n{_diff(text, fixed(entry))}\n```\n")
    if paces := result.get("examples_per_s"):
        lines.append(f"{textwrap.fill(_gain(*paces), WIDTH)}\n")
    elif entry.steps:
        lines.append("Examples per second: not measured yet.\n")
    if entry.note:
        lines.append(f"{textwrap.fill(entry.note, WIDTH)}\n")
    return "\n".join(lines)


def _looks_for(rule: RuleName) -> str:
    return f"Looks for {LOOKS_FOR[rule]}."


def _gain(before: list[float], after: list[float]) -> str:
    """The pace of both versions, each measured several times."""
    left, right = statistics.median(before), statistics.median(after)
    if max(before) >= min(after):
        both = sorted([*before, *after])
        return f"Examples per second: no difference beyond the noise on this CPU ({both[0]:,.0f} to {both[-1]:,.0f})."
    runs = f", the median of {len(before)} runs" if len(before) > 1 else ""
    return f"Examples per second{runs}: {left:,.0f} before, {right:,.0f} after ({right / left:.1f}x)."


def fixed(entry: Entry) -> str:
    """The program of an entry with the fix."""
    text = (PROGRAMS / entry.program).read_text()
    for old, new in entry.edits:
        if old not in text:
            sys.exit(f"docs/make_diagnosis.py: the fix of {entry.program} does not apply: {old!r} is not in it")
        text = text.replace(old, new)
    return text


def _diff(before: str, after: str) -> str:
    texts = [re.sub(r"  # fault: \w+", "", text).splitlines() for text in (before, after)]
    lines = difflib.unified_diff(*texts, n=0, lineterm="")
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def _programs() -> str:
    """The table of all programs of the suite."""
    rows = [
        "## All programs\n",
        "`python -m tests.faulty_programs` runs them and compares the verdicts with the marks.\n",
    ]
    rows += ["| program | fault | lines |", "| --- | --- | --- |"]
    for file in sorted(PROGRAMS.rglob("*.py")):
        if file.parent == PROGRAMS or file.name == "small.py":
            continue
        text = file.read_text()
        about = text.split('"""')[1].removeprefix("Healthy: ").split("\n")[0]
        about = about[0].upper() + about[1:]
        marks = [
            f"{rule} {number}"
            for number, line in enumerate(text.splitlines(), start=1)
            for rule in re.findall(r"# fault: (\w+)", line)
        ]
        rows.append(f"| `{file.parent.name}/{file.stem}` | {about} | {', '.join(marks) or '-'} |")
    return "\n".join(rows) + "\n"


def measure(rule: RuleName, entry: Entry) -> dict[str, Any]:
    """Runs the program of a rule under `tputui run`, and both versions to measure their pace."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result: dict[str, Any] = {"printed": _printed(rule, entry, folder)}
        if entry.steps and entry.edits:
            versions = [folder / "before.py", folder / "after.py"]
            versions[0].write_text((PROGRAMS / entry.program).read_text())
            versions[1].write_text(fixed(entry))
            paces = [[_pace(file, entry) for file in versions] for _ in range(REPEATS)]
            result["examples_per_s"] = [sorted(pace) for pace in zip(*paces, strict=True)]
    return result


def _printed(rule: RuleName, entry: Entry, folder: Path) -> str:
    """What `tputui doctor` prints about the rule."""
    path = PROGRAMS / entry.program
    words = [str(path)] if path.suffix == ".toml" else ["--", sys.executable, path.name]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PJRT_DEVICE": "CPU", "TPUTUI_RUNS": str(folder), "COLUMNS": "100"}
    tputui = [sys.executable, "-m", "tputui"]
    start = [*tputui, "run", "--no-ui", "--name", "example", *words]
    process = subprocess.Popen(start, cwd=path.parent, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if entry.live_s:
            time.sleep(entry.live_s)
        else:
            process.wait(timeout=600)
        [run_dir] = [one for one in folder.iterdir() if (one / "run.json").exists()]
        done = subprocess.run([*tputui, "doctor", run_dir.name], env=env, capture_output=True, text=True, check=False)
    finally:
        process.terminate()
        process.wait(timeout=60)
    return _block_of(TITLES[rule], done.stdout)


def _block_of(title: str, printed: str) -> str:
    """The lines about one rule: from its title to the next title."""
    lines = printed.splitlines()
    begins = [number for number, line in enumerate(lines) if line and not line.startswith(" ")]
    for number, begin in enumerate(begins):
        if lines[begin].startswith(title):
            return "\n".join(lines[begin : begins[number + 1] if number + 1 < len(begins) else None]).rstrip()
    return ""


_MEASURED = """
import runpy, sys, time
file, folder, factor = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.path.insert(0, folder)
import small
WARM_UP = 5
seen = []
class Measured(small.Net):
    def batches(self, count, size=16):
        for batch in super().batches(count * factor, size):
            seen.append((time.perf_counter(), size))
            yield batch
        seen.append((time.perf_counter(), 0))
small.Net = Measured
import torch.utils.data
import torch_xla
real_loader = torch.utils.data.DataLoader.__iter__
def counted(self):
    for batch in real_loader(self):
        seen.append((time.perf_counter(), self.batch_size))
        yield batch
    seen.append((time.perf_counter(), 0))
torch.utils.data.DataLoader.__iter__ = counted
runpy.run_path(file, run_name="__main__")
import torch_xla.core.xla_model as xm
xm.wait_device_ops()
took_s = time.perf_counter() - seen[WARM_UP][0]
print("PACE", sum(size for _, size in seen[WARM_UP:]) / took_s)
"""
"""Measures the examples per second of a program after the first steps."""


def _pace(file: Path, entry: Entry) -> float:
    folder = (PROGRAMS / entry.program).parent
    command = [sys.executable, "-c", _MEASURED, str(file), str(folder), str(entry.steps)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PJRT_DEVICE": "CPU", "TPUTUI_DISABLED": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=600)
    return float(re.findall(r"PACE (\S+)", done.stdout)[-1])


def _machine() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "torch_xla"))
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{os.cpu_count()} cores of a {platform.machine()} CPU, Python {platform.python_version()}, {versions}, {when}"
    )


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measure",
        nargs="+",
        default=[],
        metavar="RULE",
        choices=["all", *(rule for rule in ENTRIES if ENTRIES[rule].program)],
    )
    chosen = parser.parse_args().measure
    for rule in get_args(RuleName):
        if ENTRIES[rule].program and (rule in chosen or "all" in chosen):
            result = measure(rule, ENTRIES[rule])
            results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rules": {}}
            results["rules"][rule] = result
            results["machine"] = _machine()
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
