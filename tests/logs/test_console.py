"""Metrics in console output, as the usual libraries and examples print them, and what is not a metric."""

from __future__ import annotations

import io
import math

import pytest

from tests.cost import bounded
from tputui.logs.console import LINE_CHARS_MAX, ConsoleParser, check_pattern

T = 1795367320.5
Found = list[tuple[str, int | None, float, float | None]]


def parsed(text: str, parser: ConsoleParser | None = None) -> Found:
    """Tag, step, value and epoch of every value in the lines of a text."""
    parser = parser or ConsoleParser()
    values = [value for line in text.split("\n") for value in parser.parse(line, T)] + parser.finish()
    assert all(value.t == T for value in values)
    return [(value.tag, value.step, value.value, value.epoch) for value in values]


RICH = (
    "Epoch 0/2  \x1b[35m━━\x1b[0m\x1b[90m╺━\x1b[0m 14/20 \x1b[2m0:00:00 • 0:00:01\x1b[0m "
    "\x1b[2;4m35.40it/s\x1b[0m \x1b[3mtrain_loss: 0.139\x1b[0m\r\x1b[2KEpoch 0/2  \x1b[35m━━━\x1b[0m 20/20 "
    "\x1b[2m0:00:00 •       \x1b[0m \x1b[2;4m35.10it/s \x1b[0m \x1b[3mtrain_loss: 0.146\x1b[0m\n"
    "                                   \x1b[2m0:00:00         \x1b[0m                             \n"
    "Validation \x1b[35m━━━\x1b[0m 20/20 \x1b[2m0:00:00 •       \x1b[0m \x1b[2;4m271.49it/s\x1b[0m                  \n"
    "\r\x1b[2K\x1b[1A\x1b[2KEpoch 1/2  \x1b[90m━━\x1b[0m 0/20 \x1b[2m0:00:00 • 0:00:00\x1b[0m \x1b[2;4m0.00it/s\x1b[0m "
    "\x1b[3mtrain_loss: 0.146 \x1b[0m\n"
    "                                                              \x1b[3mval_loss: 0.135   \x1b[0m\r"
    "\x1b[2K\x1b[1A\x1b[2KEpoch 1/2  \x1b[35m╸\x1b[0m\x1b[90m━\x1b[0m 3/20 \x1b[2m0:00:00 • -:--:--\x1b[0m "
    "\x1b[2;4m0.00it/s\x1b[0m \x1b[3mtrain_loss: 0.207 \x1b[0m\n"
    "                                                              \x1b[3mval_loss: 0.135   \x1b[0m\n"
)
"""As Lightning 2.6 and Rich 14 write it with `TTY_COMPATIBLE=1`."""
RICH_END = (
    "Epoch 2/2  ━━━━━ 20/20 0:00:00 • 0:00:00 33.69it/s train_loss: 0.036\n"
    "                                                               val_loss: 0.021  \n"
)
"""As without it."""


def test_the_word_set_is_no_part_of_a_name() -> None:
    parser = ConsoleParser()
    lines = ["Epoch 0 in 1.23 sec", "Training set accuracy 0.87", "Test set accuracy 0.85"]
    values = [value for line in lines for value in parser.parse(line, 0.0)]
    assert [(value.tag, value.epoch, value.value) for value in values] == [
        ("training_accuracy", 0.0, 0.87),
        ("test_accuracy", 0.0, 0.85),
    ]


def test_bars_by_rich_are_read_with_their_steps() -> None:
    assert parsed(RICH) == [
        ("train_loss", 14, 0.139, 0.0),
        ("train_loss", 20, 0.146, 0.0),
        ("val_loss", 20, 0.135, 1.0),
        ("train_loss", 23, 0.207, 1.0),
    ]
    assert parsed(RICH_END) == [("train_loss", 60, 0.036, 2.0), ("val_loss", 60, 0.021, 2.0)]


def test_numbers_before_lines_are_ranks_only_if_the_launcher_labels_them() -> None:
    text = "0: step 10 loss 0.5\n1: step 10 loss 0.25\n[1] step 20 loss 0.125\n9: step 30 loss 1.0"
    assert [tag for tag, *_ in parsed(text)] == ["loss"] * 4
    parser = ConsoleParser()
    parser.num_labels = 8
    assert [(tag, step) for tag, step, *_ in parsed(text, parser)] == [
        ("loss/rank0", 10), ("loss/rank1", 10), ("loss/rank1", 20), ("loss", 30)
    ]  # fmt: skip


def test_every_rank_has_a_step_and_an_epoch_of_its_own() -> None:
    text = "[rank0]: Epoch 1\n[rank1]: Epoch 1\n[rank0]: Epoch 2\n[rank1]: step 5 loss 0.5\n[rank0]: step 9 loss 0.25"
    assert parsed(text) == [("loss/rank1", 5, 0.5, 1.0), ("loss/rank0", 9, 0.25, 2.0)]


def test_ranks_that_print_without_their_rank_do_not_count_as_epochs() -> None:
    lines = [f"step {step + lag} loss 0.5" for step in range(10, 60, 10) for lag in (10, 0, 10, 0)]
    alone, mixed = ConsoleParser(), ConsoleParser()
    mixed.num_ranks = 4
    assert max(step or 0 for _, step, *_ in parsed("\n".join(lines), alone)) > 60
    assert max(step or 0 for _, step, *_ in parsed("\n".join(lines), mixed)) == 60
    assert (alone.is_mixed, mixed.is_mixed) == (False, True)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 120 | loss 0.123 | lr 1e-3", [("loss", 120, 0.123, None), ("lr", 120, 1e-3, None)]),
        ("Epoch 3/10 loss: 0.5 acc: 0.9", [("loss", None, 0.5, 3.0), ("acc", None, 0.9, 3.0)]),
        ("epoch=2 step=30 loss=nan lr=1e-05", [("loss", 30, math.nan, 2.0), ("lr", 30, 1e-5, 2.0)]),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.1", [("loss", 640, 2.1, 1.0)]),
        (
            "Test set: Average loss: 0.1015, Accuracy: 9675/10000 (97%)",
            [("valid/average_loss", None, 0.1015, None), ("valid/accuracy", None, 97.0, None)],
        ),
        (
            "[xla:0](3) Loss=2.33 Rate=432.10 GlobalRate=430.00 Time=Sat Nov 22 17:05:13 2026",
            [("loss/core0", 3, 2.33, None), ("rate/core0", 3, 432.1, None), ("globalrate/core0", 3, 430.0, None)],
        ),
        (
            "| Training Device=xla:0/3 Epoch=1 Step=20 Loss=2.30000 Rate=123.40 GlobalRate=120.00 Time=17:05:13",
            [
                ("loss/core3", 20, 2.3, 1.0), ("rate/core3", 20, 123.4, 1.0),
                ("globalrate/core3", 20, 120.0, 1.0),
            ],
        ),
        (
            "Epoch: [0][ 10/5005]\tTime  0.123 ( 0.456)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.39 (  0.10)",
            [("time", 10, 0.123, 0.0), ("loss", 10, 6.9, 0.0), ("acc@1", 10, 0.39, 0.0)],
        ),
        (
            "[titan] 2025-03-01 10:00:01 - root - INFO - step:  1  loss:  8.1297  memory:  0.9GiB(1%)  tps: 4,000",
            [("loss", 1, 8.1297, None), ("tps", 1, 4000.0, None)],
        ),
        ("iter 10: loss 1.2345, time 12.30ms, mfu 3.20%", [("loss", 10, 1.2345, None), ("mfu", 10, 3.2, None)]),
        (
            "step 250: train loss 1.9634, val loss 2.0585",
            [("train/train_loss", 250, 1.9634, None), ("val_loss", 250, 2.0585, None)],
        ),
        *(
            (f"{prefix}step 10 loss 0.5", [("loss/rank3", 10, 0.5, None)])
            for prefix in (
                "[rank3]: ", "[default3]:", "[trainer3]:", "[RANK 3] ", "INFO:__main__:[RANK 3] ", "[GPU3] ",
                "rank 3: ", "Rank 3 | ", "(rank 3) ", "2026-11-22 17:05:13 [rank 3] INFO ", "[1,3]<stdout>:",
                "[1,3]<stdout>: ", "[prterun-node01-4711@1,3]<stdout>: ", "[pod/llama-workers-0-3-x7k2p/trainer] ",
                "[pod/train-3-x7k2p/main] ", "[pod/train-3/main] ", "rank=3 ", "rank: 3, ",
            )
        ),
        ("[pod/a-workers-1-3-x7k2p/main] step 10 loss 0.5", [("loss/job1/rank3", 10, 0.5, None)]),
        ("[pod/a-workers-0-1-x7k2p/main] [default3]:step 10 loss 0.5", [("loss/pod1/rank3", 10, 0.5, None)]),
        ("3: step 10 loss 0.5", [("loss", 10, 0.5, None)]),
        ("[2,  2000] loss: 1.234", [("loss", 2000, 1.234, 2.0)]),
        ("train Loss: 0.4528 Acc: 0.7828", [("train_loss", None, 0.4528, None), ("acc", None, 0.7828, None)]),
        ("Epoch 1, val_loss: inf, t_loss=1", [("t_loss", None, 1.0, 1.0), ("val_loss", None, math.inf, 1.0)]),
        ("INFO:root:Iteration 100: loss=0.5, acc=91.2%", [("loss", 100, 0.5, None), ("acc", 100, 91.2, None)]),
        ('{"step": 3, "loss": 0.25}', [("loss", 3, 0.25, None)]),
        ("{'loss': 0.1, 'norm': nan, 'epoch': 1.0}", [("loss", None, 0.1, 1.0), ("norm", None, math.nan, 1.0)]),
        ("\x1b[32mstep 5\x1b[0m loss=\x1b[1m0.5\x1b[0m", [("loss", 5, 0.5, None)]),
    ],
)  # fmt: skip
def test_usual_lines_are_read(line: str, expected: Found) -> None:
    assert repr(parsed(line)) == repr(expected)


PRINTED_NUMBERS = (
    "0.25", "tensor(0.2500)", "tensor(0.2500, device='cuda:1')",
    "tensor([0.2500], device='xla:0', grad_fn=<MeanBackward0>)",
    "tensor([[0.25]], dtype=torch.float64)", "tensor(0.25, requires_grad=True)", "np.float64(0.25)",
    "numpy.float32(0.25)", "array(0.25)", "array([0.25], dtype=float32)", "Array(0.25, dtype=float32, weak_type=True)",
    "DeviceArray(0.25, dtype=float32)", "jnp.array(0.25, dtype=bfloat16)", "array(np.float32(0.25), dtype=object)",
    "Parameter(tensor(0.25, requires_grad=True))", "Decimal('0.25')",
    "DTensor(local_tensor=0.25, device_mesh=DeviceMesh('cuda', [0, 1]), placements=(Replicate(),))",
    "Tensor(shape=[1], dtype=float32, place=Place(gpu:0), stop_gradient=True, [0.25])",
    "<tf.Tensor: shape=(), dtype=float32, numpy=0.25>", "<Variable path=v, shape=(), dtype=float32, value=0.25>",
)  # fmt: skip


@pytest.mark.parametrize("number", PRINTED_NUMBERS)
def test_printed_tensors_and_arrays_are_their_number(number: str) -> None:
    assert parsed(f"step 3 loss {number}") == [("loss", 3, 0.25, None)]
    pair = [("loss", 3, 0.25, None), ("acc", 3, 0.25, None)]
    assert parsed(f"step: 3, loss: {number}, acc={number}") == pair
    assert parsed(f"{{'step': 3, 'loss': {number}, 'acc': {number}}}") == pair
    bar = f"Epoch 1: 100%|███| 3/3 [00:01<00:00, 3.00it/s, loss={number}]"
    assert parsed(bar) == [("loss", 3, 0.25, 1.0)]


def test_printed_parameters_continue_on_the_next_line() -> None:
    text = "step 3 loss Parameter containing:\ntensor(0.5, requires_grad=True)\nstep 4 loss 0.25\n"
    text += "{'step': 5, 'loss': Parameter containing:\ntensor([0.125], device='xla:0', requires_grad=True)}"
    assert parsed(text) == [("loss", 3, 0.5, None), ("loss", 4, 0.25, None), ("loss", 5, 0.125, None)]


@pytest.mark.parametrize(
    "line",
    [
        "step 3 logits tensor([0.1, 0.2], device='cuda:0')",
        "step 3 logits: tensor([[0.1, 0.2],",
        "        [0.3, 0.4]], device='xla:0', dtype=torch.float16)",
        "step 3 on cuda:1 with cpu:0",
        "step 3 loss tensor(..., device='meta', size=())",
        "step 3 devices 0,1",
        "CUDA_VISIBLE_DEVICES=0,1 step 3",
    ],
)
def test_devices_and_tensors_of_many_numbers_are_no_metrics(line: str) -> None:
    assert parsed(line) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 10 loss 0,532", [("loss", 10, 0.532, None)]),
        ("step 10 loss -0,5 lr 1,0e-3", [("loss", 10, -0.5, None), ("lr", 10, 1e-3, None)]),
        ("step 10 loss 1.234,5", [("loss", 10, 1234.5, None)]),
        ("step 10 loss 1,234", [("loss", 10, 1234.0, None)]),
        ("step 10 loss 1,234 acc 0,91", [("loss", 10, 1.234, None), ("acc", 10, 0.91, None)]),
        ("step 10 tps 4,000 loss 0.5", [("tps", 10, 4000.0, None), ("loss", 10, 0.5, None)]),
        (
            "step 10 tps 4,000 loss 0,5 acc 0.9",
            [("tps", 10, 4e3, None), ("loss", 10, 0.5, None), ("acc", 10, 0.9, None)],
        ),
        ("step 10,000 loss 0,5", [("loss", 10_000, 0.5, None)]),
        ("step: 1_000/2_000 loss 0.5", [("loss", 1_000, 0.5, None)]),
        ("step 12k loss 0.5", [("loss", 12_000, 0.5, None)]),
        ("iter 1.5M loss 0.5", [("loss", 1_500_000, 0.5, None)]),
        ("Epoch 1 [ 10,000/50,000] loss: 0.5", [("loss", 10_000, 0.5, 1.0)]),
        ("{'loss': 0,532, 'lr': '0,25', 'epoch': 1}", [("loss", None, 0.532, 1.0), ("lr", None, 0.25, 1.0)]),
        ("[1,3]<stdout>: step 10 loss 0,5", [("loss/rank3", 10, 0.5, None)]),
        ("step 10 loss=0.5 lr: [0.001]", [("loss", 10, 0.5, None), ("lr", 10, 0.001, None)]),
    ],
)
def test_commas_separate_decimals_or_thousands(line: str, expected: Found) -> None:
    assert parsed(line) == expected


def test_a_decimal_comma_decides_for_the_lines_below_it() -> None:
    text = "step 1 loss 1,234\nstep 2 loss 0,9\nstep 3 loss 1,234\nstep 4 loss 1,234 lr 0.5"
    assert [value for tag, _, value, _ in parsed(text) if tag == "loss"] == [1234.0, 0.9, 1.234, 1234.0]


def test_values_of_a_pattern_may_be_printed_tensors() -> None:
    parser = ConsoleParser(r"L=(?P<loss>\S+) T=tensor\((?P<score>[\d.]+)\)")
    assert parsed("L=tensor(0.5) T=tensor(0.25)\nL=0,532 T=tensor(0.75)", parser) == [
        ("loss", None, 0.5, None), ("score", None, 0.25, None),
        ("loss", None, 0.532, None), ("score", None, 0.75, None),
    ]  # fmt: skip


HUGGING_FACE = (
    "\r  0%|          | 0/16 [00:00<?, ?it/s]\r                  \r"
    "{'loss': '1.344', 'learning_rate': '4.063e-05', 'epoch': '0.5'}\n"
    "\r 25%|██▌       | 4/16 [00:00<00:00, 58.72it/s]\r                 \r"
    "{'loss': '0.9687', 'learning_rate': '2.813e-05', 'epoch': '1'}\n"
    "\r 50%|█████     | 8/16 [00:00<00:00, 82.76it/s]\n"
    "\r  0%|          | 0/2 [00:00<?, ?it/s]\x1b[A\r                                              \n"
    "\r                                     \r\x1b[A{'eval_loss': '0.471', 'eval_runtime': '0.0112', 'epoch': '1'}\n"
    "\r 50%|█████     | 8/16 [00:00<00:00, 73.44it/s]\n"
    "\r100%|██████████| 2/2 [00:00<00:00, 206.47it/s]\x1b[A\n"
)  # fmt: skip
"""What transformers 5 printed for a tiny model."""


def test_dictionaries_of_transformers_have_the_steps_of_its_bar() -> None:
    assert parsed(HUGGING_FACE) == [
        ("loss", 4, 1.344, 0.5), ("learning_rate", 4, 4.063e-05, 0.5),
        ("loss", 8, 0.9687, 1.0), ("learning_rate", 8, 2.813e-05, 1.0),
        ("eval_loss", 8, 0.471, 1.0), ("eval_runtime", 8, 0.0112, 1.0),
    ]  # fmt: skip


def keras_bar(position: int, rest: str) -> str:
    full, empty = "━" * (2 * position), "━" * (16 - 2 * position)
    return (
        f"\r\x1b[1m{position}/8\x1b[0m \x1b[32m{full}\x1b[0m\x1b[37m{empty}\x1b[0m \x1b[1m0s\x1b[0m 41ms/step - {rest}"
    )


def test_keras_bars_count_their_steps_over_epochs() -> None:
    text = (
        "Epoch 1/2\n"
        + keras_bar(1, "loss: 1.8474 - mae: 1.0004" + "\b" * 67)
        + keras_bar(8, "loss: 1.7460 - mae: 1.0772 - val_loss: 1.5979\n")
        + "Epoch 2/2\n"
        + keras_bar(1, "loss: 2.6942 - mae: 1.2e-04\n")
    )
    assert parsed(text) == [
        ("loss", 1, 1.8474, 1.0), ("mae", 1, 1.0004, 1.0),
        ("loss", 8, 1.746, 1.0), ("mae", 8, 1.0772, 1.0), ("val_loss", 8, 1.5979, 1.0),
        ("loss", 9, 2.6942, 2.0), ("mae", 9, 1.2e-4, 2.0),
    ]  # fmt: skip


def test_a_state_of_a_keras_bar_that_threads_print_late_begins_no_epoch() -> None:
    text = (
        "Epoch 1/2\n"
        + keras_bar(8, "loss: 1.7460")
        + keras_bar(1, "loss: 1.8474" + "\b" * 67)
        + keras_bar(8, "loss: 1.7460 - val_loss: 1.5979\n")
        + "Epoch 2/2\n"
        + keras_bar(1, "loss: 2.6942")
        + keras_bar(8, "loss: 1.7000\n")
        # `evaluate` after the training begins again from the first step, with means so far.
        + keras_bar(1, "loss: 0.5000")
        + keras_bar(8, "loss: 0.6000\n")
    )
    assert parsed(text) == [
        ("loss", 8, 1.746, 1.0), ("val_loss", 8, 1.5979, 1.0),
        ("loss", 9, 2.6942, 2.0), ("loss", 16, 1.7, 2.0),
        ("test_loss", 16, 0.6, 2.0),
    ]  # fmt: skip


def test_one_line_per_epoch_of_keras_is_read() -> None:
    text = "Epoch 1/2\n8/8 - 0s - 10ms/step - loss: 1.35\nEpoch 2/2\n8/8 - 0s - 13ms/step - loss: 1.21"
    assert parsed(text) == [("loss", 8, 1.35, 1.0), ("loss", 16, 1.21, 2.0)]
    older = "12/25 [=====>........] - ETA: 0s - loss: 0.69 - accuracy: 0.5"
    assert parsed(older) == [("loss", 12, 0.69, None), ("accuracy", 12, 0.5, None)]


def test_bars_of_tqdm_are_read_with_their_postfix() -> None:
    tqdm = pytest.importorskip("tqdm")
    printed = io.StringIO()
    for epoch in (1, 2):
        bar = tqdm.tqdm(range(4), desc=f"Epoch {epoch}/2", file=printed, mininterval=0)
        for step in bar:
            bar.set_postfix(loss=1 / (step + epoch), lr=1e-5)
        bar.close()
    losses = [(step, value, epoch) for tag, step, value, epoch in parsed(printed.getvalue()) if tag == "loss"]
    assert losses == [
        (0, 1.0, 1.0), (1, 0.5, 1.0), (2, 0.333, 1.0), (3, 0.25, 1.0),
        (4, 0.5, 2.0), (5, 0.333, 2.0), (6, 0.25, 2.0), (7, 0.2, 2.0),
    ]  # fmt: skip


def test_bar_of_lightning_is_read_without_its_version() -> None:
    bar = "Epoch 3: 100%|██████████| 12/12 [00:01<00:00, 10.53it/s, v_num=0, train_loss=0.200]"
    assert parsed(bar) == [("train_loss", 12, 0.2, 3.0)]
    assert parsed("Validation DataLoader 0: 50%|#####     | 1/2 [00:00<00:00, 99it/s, loss=0.1]") == [
        ("valid/loss", None, 0.1, None)
    ]
    assert parsed("Sanity Checking DataLoader 0: 50%|#####     | 1/2 [00:00<00:00, 99it/s, loss=0.1]") == []


def test_header_gives_the_epoch_of_the_lines_below_it() -> None:
    text = "Epoch 0/24\n----------\ntrain Loss: 0.45 Acc: 0.78\nval Loss: 0.38 Acc: 0.84\nEpoch 1/24\n"
    text += "train Loss: 0.41 Acc: 0.80"
    assert [(tag, epoch) for tag, _, _, epoch in parsed(text)] == [
        ("train_loss", 0.0), ("acc", 0.0), ("val_loss", 0.0), ("valid/acc", 0.0), ("train_loss", 1.0), ("acc", 1.0),
    ]  # fmt: skip


def test_positions_in_an_epoch_count_on() -> None:
    text = "\n".join(f"Train Epoch: {epoch} [{n}/100 ({n}%)]  Loss: 0.5" for epoch in (1, 2) for n in (0, 50, 100))
    assert [step for _, step, _, _ in parsed(text)] == [0, 50, 100, 100, 150, 200]


PROSE = """\
Collecting numpy>=2 (from -r requirements.txt (line 3))
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl.metadata (6.6 kB)
   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 16.9/16.9 MB 45.6 MB/s eta 0:00:00
Requirement already satisfied: six>=1.5 in ./lib/python3.11/site-packages (from python-dateutil) (1.17.0)
Successfully installed google-crc32c-1.9.0 numpy-2.4.6
Found existing installation: torch 2.9.0
============================= test session starts ==============================
platform linux -- Python 3.11.7, pytest-8.4.2, pluggy-1.6.0 -- /usr/bin/python3
rootdir: /home/me/project, configfile: pyproject.toml, plugins: xdist-3.8.0, anyio-4.16.0
collected 25 items
tests/test_loss.py::test_loss_is_finite[step=3-lr=0.1] PASSED                 [ 50%]
tests/test_train.py:12: AssertionError: assert 0.5 == 0.25
0.35s call     tests/test_text_logs.py::test_every_prefix
======================== 25 passed, 3 warnings in 0.79s =========================
/lib/torch/optim/lr_scheduler.py:192: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.
WARNING:root:Defaulting to PJRT_DEVICE=CPU
W1122 17:05:13.123456 140234 torch/distributed/run.py:774] Setting OMP_NUM_THREADS to be 1 in default
2026-11-22 17:05:13.123: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized
Some weights of Bert were not initialized from the model checkpoint at bert-base-uncased: ['classifier.bias']
***** Running training *****
  Num examples = 64
  Num Epochs = 2
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 8
  Gradient Accumulation steps = 1
  Total optimization steps = 16
  Number of trainable parameters = 5
***** Running Evaluation *****
  Num examples = 16
  Batch size = 8
Saving model checkpoint to out/checkpoint-16
Configuration saved in out/checkpoint-16/config.json
model.safetensors: 100%|██████████| 268M/268M [00:03<00:00, 77.5MB/s]
Map: 100%|██████████| 1000/1000 [00:00<00:00, 9000.12 examples/s]
Loading checkpoint shards: 100%|██████████| 2/2 [00:01<00:00,  1.50it/s]
{'lr': 0.1, 'batch_size': 32, 'epochs': 10, 'seed': 0}
Namespace(lr=0.1, batch_size=32, epochs=10, seed=0, no_cuda=False)
Using device: cuda:0
Loss function: CrossEntropyLoss()
Resuming from runs/step_1200/checkpoint.pt
  | Name  | Type   | Params | Mode
0 | layer | Linear | 3      | train
3         Trainable params
Epoch 5 took 12.3 seconds
Finished epoch 3 of the warm-up after 17:05:13, and now the second stage of the training of this large model begins
Saved checkpoint at step 120 to /tmp/run/step=120-loss=0.5.ckpt
Traceback (most recent call last):
  File "/home/me/train.py", line 42, in <module>
ValueError: step 3: expected 10 values: 12:30:01, got version 1.2.3
listening on http://localhost:6006/ (pid: 1234, port=6006)
-rw-r--r-- 1 me me 49983490 Nov 22 17:16 loss.csv
commit 356a1bf: Read CSV at step 3 of the plan
Sat Nov 22 17:05:13 UTC 2026
CompileTime: TotalSamples: 3 Accumulator: 01s234ms
Epoch 1/2
"""


@pytest.mark.parametrize("line", PROSE.splitlines())
def test_prose_times_versions_and_paths_are_not_metrics(line: str) -> None:
    assert parsed(line) == []


def test_prose_does_not_end_the_form_of_the_lines_around_it() -> None:
    assert [step for _, step, _, _ in parsed("step 1 loss 0.5\n" + PROSE + "step 2 loss 0.25")] == [1, 2]


def test_pattern_replaces_the_usual_forms() -> None:
    parser = ConsoleParser(r"it (?P<step>\d+) core (?P<core>\d) L=(?P<train__loss>\S+)(?: E=(?P<epoch>\S+))?")
    assert parsed("it 3 core 1 L=0.5\nstep 4 loss 0.25\nit 5 core 0 L=1e-3 E=2\nit 6 core 0 L=none", parser) == [
        ("train/loss/core1", 3, 0.5, None), ("train/loss/core0", 5, 1e-3, 2.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"loss (?P<loss>\S+)", None),
        (r"(?P<step>\d+) (?P<epoch>\d+)", "has no named group for a metric, such as (?P<loss>[-+.e0-9]+)"),
        (r"loss (\S+)", "has no named group for a metric, such as (?P<loss>[-+.e0-9]+)"),
        (r"loss (?P<loss>\S+", "not a regular expression: missing ), unterminated subpattern at position 5"),
    ],
)
def test_patterns_are_checked_before_the_start(pattern: str, reason: str | None) -> None:
    assert check_pattern(pattern) == reason


@pytest.mark.parametrize(
    "part",
    [
        "a", "1", "1,000,", "loss: ", "a=1 ", "epoch 1/", "{'a': 1, ", "1/2 - a: 1", "%|", "train ", "\x1b[", "-",
        "tensor(", "tensor(1),", "a.", "a_tensor", "loss 0,5 ", "step 1,000", "<tf.Tensor: ", "loss: [1.0] ",
    ],
)  # fmt: skip
def test_hostile_lines_take_linear_time(part: str) -> None:
    for start in ("", "step 1 ", "1/8 ", "{'loss': 1, ", " 50%|##| 1/2 [00:01<00:02, 3it/s, "):
        line = (start + part * LINE_CHARS_MAX)[:LINE_CHARS_MAX]
        with bounded(2.0):
            ConsoleParser().parse(line, T)


def test_long_lines_and_long_updates_are_bounded() -> None:
    assert parsed("step 1 loss 0.5 " + "x" * LINE_CHARS_MAX) == []
    assert len(parsed("\r".join(f"step {step} loss 0.5" for step in range(1000)))) == 256


def test_positions_of_the_examples_of_torch_xla_count_on_for_every_core() -> None:
    parser = ConsoleParser()
    lines = [f"[xla:{core}]({step}) Loss=0.5 Rate=10.0" for _ in range(2) for step in (0, 10, 20) for core in (0, 1)]
    found = [value for line in lines for value in parser.parse(line, 1.0) if value.tag == "loss/core1"]
    assert [value.step for value in found] == [0, 10, 20, 30, 40, 50]


def series(text: str) -> dict[str, list[tuple[int | None, float]]]:
    """Step and value of every value in the lines of a text, by tag."""
    found: dict[str, list[tuple[int | None, float]]] = {}
    for tag, step, value, _ in parsed(text):
        found.setdefault(tag, []).append((step, value))
    return found


def test_a_name_on_lines_of_another_template_is_another_metric() -> None:
    text = (
        "Epoch: [1] [ 10/20]  loss: 0.9 (0.95)\nEpoch: [1] [ 20/20]  loss: 0.8 (0.85)\nAveraged stats: loss: 0.8 (0.85)"
    )
    assert series(text) == {"loss": [(10, 0.9), (20, 0.8)], "averaged_stats_loss": [(20, 0.85)]}
    text = "step 0: train loss 4.25, val loss 4.5\niter 0: loss 4.0, time 1.0ms\niter 10: loss 3.0, time 1.0ms"
    assert series(text) == {"train/train_loss": [(0, 4.25)], "val_loss": [(0, 4.5)], "loss": [(0, 4.0), (10, 3.0)]}


def test_lines_below_a_test_are_of_it_until_training_goes_on() -> None:
    text = "step 10 loss 0.5\nTest Error: \n Accuracy: 45.5%, Avg loss: 2.5\nstep 20 loss 0.25\nSPS: 100.5"
    assert series(text) == {
        "loss": [(10, 0.5), (20, 0.25)], "valid/accuracy": [(10, 45.5)], "valid/avg_loss": [(10, 2.5)],
        "sps": [(20, 100.5)],
    }  # fmt: skip


def test_a_test_beside_a_validation_is_another_metric() -> None:
    text = "epoch 1 train loss 0.5\nValidation: loss: 0.75, accuracy: 0.5\nTest results: loss: 0.625, accuracy: 0.25"
    assert series(text) == {
        "train_loss": [(None, 0.5)], "valid/loss": [(None, 0.75)], "valid/accuracy": [(None, 0.5)],
        "test_loss": [(None, 0.625)], "test_accuracy": [(None, 0.25)],
    }  # fmt: skip


def test_an_evaluation_in_parts_has_the_means_of_its_last_line_or_its_summary() -> None:
    text = "Epoch: [0][5/9]\tLoss 3.0 (3.5)\nTest: [1/2]\tLoss 2.0 (2.5)\tAcc@1 1.0 (1.5)\n"
    text += "Test: [2/2]\tLoss 2.0 (2.25)\tAcc@1 1.0 (2.5)\n *   Acc@1 2.75\nEpoch: [1][5/9]\tLoss 1.0 (1.5)"
    assert series(text) == {"loss": [(5, 3.0), (14, 1.0)], "valid/loss": [(5, 2.25)], "valid/acc@1": [(5, 2.75)]}


def test_a_step_on_a_line_of_its_own_is_that_of_the_lines_below_it() -> None:
    text = "STEP:  0\nloss: 0.5\ntest loss: 0.75\nSTEP:  1\nloss: 0.25"
    assert series(text) == {"loss": [(0, 0.5), (1, 0.25)], "test_loss": [(0, 0.75)]}


def test_tables_and_boxes_are_read() -> None:
    text = (
        "epoch     train_loss  valid_loss  accuracy  time    \n0         1.25        0.75        0.5       00:21     \n"
    )
    assert series(text) == {"train_loss": [(None, 1.25)], "valid_loss": [(None, 0.75)], "valid/accuracy": [(None, 0.5)]}
    rule, head = "-" * 38, "| time/              |              |"
    text = f"{rule}\n{head}\n|    total_timesteps | 2048         |\n| train/             |              |\n"
    text += f"|    loss            | 7.5          |\n{rule}"
    assert series(text) == {"train/loss": [(2048, 7.5)]}


def test_totals_are_printed_in_positions_and_in_words() -> None:
    for text, totals in (
        ("Epoch 1/3 step 5/10 loss 0.5", {"total_steps": 30, "total_epochs": 3}),
        ("step 5/10 loss 0.5", {"total_steps": 10}),
        ("Epoch 1 [5/10] loss: 0.5", {}),
        ("workflow, max: 12 epochs\nEpoch [1][50/120]\tloss: 0.5", {"total_steps": 1440, "total_epochs": 12}),
        ("max steps: 234\nstep 5 loss 0.5", {"total_steps": 234}),
    ):
        parser = ConsoleParser()
        parsed(text, parser)
        assert parser.config == totals


def test_rank_0_has_no_suffix_while_it_is_alone() -> None:
    assert series("[rank0]: step 1 loss 0.5") == {"loss": [(1, 0.5)]}
    text = "a1:0: ready\na2:1: ready\na1:0: step 1 loss 0.5\na2:1: step 1 loss 0.25\na1:0: step 1 val loss 0.75"
    assert series(text) == {"loss/rank0": [(1, 0.5)], "loss/rank1": [(1, 0.25)], "val_loss": [(1, 0.75)]}
