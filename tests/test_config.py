"""The configuration: strict, documented, checked in full before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tputui import config
from tputui.config import ConfigError, RunConfig
from tputui.config.tables import field_docs

SAMPLE = Path(__file__).parent.parent / "sample_configs" / "digits.toml"
MINIMAL = 'task = "digits"\nepochs = 2\n[data]\nbatch_per_core = 4\n'


def sample(*overrides: str) -> RunConfig:
    return config.load(SAMPLE, list(overrides))


def refusal(text: str, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "my.toml", list(overrides))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_all_wrong_keys_and_values_are_named_at_once() -> None:
    text = 'task = "digits"\nepochs = "three"\nlrr = 1\n[data]\nbatch_per_core = 4\n[optim]\nlr = "x"\n'
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "my.toml")
    lines = str(caught.value).splitlines()
    assert [next(key for key in ("lrr", "epochs", "optim.lr") if key in line) for line in lines] == [
        "lrr",
        "epochs",
        "optim.lr",
    ]
    with pytest.raises(ConfigError) as caught:
        config.parse(MINIMAL.replace("epochs = 2", "epochs = 0") + "[optim]\nlr = 1e400\n", "my.toml")
    assert str(caught.value) == "my.toml: epochs: 0 must be positive\nmy.toml: optim.lr: inf must be finite"


def test_the_sample_trains_on_as_many_cores_as_there_are() -> None:
    assert sample().device.cores == "all"
    with pytest.raises(ValueError, match="has no number until"):
        _ = sample().num_cores
    digits = sample().on_cores(8)
    assert (digits.num_cores, digits.device.strategy) == (8, "spmd")
    assert digits.global_batch == 8 * digits.batch_per_core
    assert digits.scaled_lr == pytest.approx(8 * digits.optim.lr)
    assert f"{digits.optim.lr:g} x 8 cores" in digits.lr_rule


def test_config_round_trips_through_the_manifest() -> None:
    digits = sample("device.cores=[5]", "data.valid_fraction=0.25")
    assert config.from_builtins(config.to_builtins(digits), "run.json") == digits


@pytest.mark.parametrize(
    ("override", "read", "value"),
    [
        ("epochs=3", lambda c: c.epochs, 3),
        ("optim.lr=0.01", lambda c: c.optim.lr, 0.01),
        ("device.precision=bf16", lambda c: c.device.precision, "bf16"),
        ("device.cores=[5]", lambda c: c.core_ids, [5]),
        ("device.cores=1", lambda c: c.core_ids, [0]),
        ("data.global_batch=128", lambda c: c.batch_per_core, 16),
        ("data.valid_fraction=0.3", lambda c: c.data.options["valid_fraction"], 0.3),
        ("optim.name=rmsprop", lambda c: c.optim.used_momentum, 0.0),
        ("optim.name=sgd", lambda c: c.optim.used_momentum, 0.9),
        # Runs of earlier versions recorded it with any optimizer.
        ("optim.momentum=0.9", lambda c: c.optim.used_momentum, 0.0),
        ("optim.betas=[0.8, 0.99]", lambda c: c.optim.betas, (0.8, 0.99)),
        (
            "optim.warmup_epochs=2",
            lambda c: c.lr_rule,
            "0.0005 x 8 cores, linear warm-up over 2 epochs, x 0.5 every 5 epochs",
        ),
        ("optim.lr_scaling=sqrt", lambda c: round(c.scaled_lr / c.optim.lr, 6), 2.828427),
        ("optim.lr_scaling=none", lambda c: c.scaled_lr / c.optim.lr, 1.0),
    ],
)
def test_set_overrides_a_key(override: str, read: Any, value: object) -> None:
    assert read(sample(override).on_cores(8)) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs = ", "not valid TOML"),
        ("epochs = 2\n[data]\nbatch_per_core = 4", '"task" is missing'),
        ('task = "digits"\nepochs = 2\n', "batch_per_core is missing"),
        (MINIMAL.replace("batch_per_core = 4", ""), "batch_per_core is missing"),
        (MINIMAL + "global_batch = 8", "set either batch_per_core or global_batch, not both"),
        (MINIMAL + "[optim]\nlrr = 1", '[optim] has no key "lrr"; did you mean "lr"?'),
        (MINIMAL + "[optmi]\nlr = 1", 'unknown key "optmi"; did you mean "optim"?'),
        (MINIMAL + '[optim]\nname = "adm"', "optim.name: 'adm' is not one of adam, adamw, sgd"),
        (MINIMAL + '[optim]\nlr = "fast"', "optim.lr: expected `float`, got `str`"),
        (MINIMAL + "[optim]\nlr = nan", "optim.lr: nan must be finite"),
        (MINIMAL + "[optim]\nweight_decay = -1.0", "optim.weight_decay: -1.0 must be 0 or more"),
        (MINIMAL + "[optim]\nclip_norm = 0.0", "optim.clip_norm: 0.0 must be positive"),
        (MINIMAL + "[optim]\naccumulate = 0", "optim.accumulate: 0 must be positive"),
        (MINIMAL + "[optim]\nbetas = [0.9, 1.0]", "optim.betas: 1.0 must be at least 0 and less than 1"),
        (
            MINIMAL + "[optim]\nalpha = 0.9",
            'optim.alpha: has no effect with name = "adam"; remove it, or use "rmsprop"',
        ),
        (
            MINIMAL + "[optim]\nmomentum = 0.5",
            'optim.momentum: has no effect with name = "adam"; remove it, or use "sgd" or "rmsprop"',
        ),
        (
            MINIMAL + '[optim]\nschedule = "cosine"\nstep_size = 3',
            'optim.step_size: has no effect with schedule = "cosine"; remove it, or use "step"',
        ),
        (
            MINIMAL + "[optim]\nmin_lr = 1e-5",
            'optim.min_lr: has no effect with schedule = "constant"; remove it, or use "step" or "cosine"',
        ),
        (MINIMAL + '[optim]\nschedule = "step"', "optim.step_size: missing: the number of epochs between"),
        (
            MINIMAL + '[optim]\nschedule = "cosine"\nlr = 0.01\nmin_lr = 0.1',
            "optim.min_lr: 0.1 exceeds optim.lr (0.01)",
        ),
        (
            MINIMAL + "[optim]\nwarmup_epochs = 1\nwarmup_steps = 5",
            "optim: set either warmup_epochs or warmup_steps, not both",
        ),
        (MINIMAL + "[optim]\nwarmup_epochs = 5000", "optim.warmup_epochs: 5000 exceeds the"),
        (MINIMAL + "[device]\ncores = 0", "device.cores: 0 must be 1 or more"),
        (MINIMAL + "[device]\ncores = [1, 2]", "must contain one core"),
        (MINIMAL + "[device]\ncores = [-1]", "must be the index of a core, from 0"),
        (MINIMAL + "[report]\ninterval_s = 5.0", "exceeds the maximum of 1 s"),
        (MINIMAL.replace("epochs = 2", "epochs = 0"), "epochs: 0 must be positive"),
        (MINIMAL.replace("epochs = 2", f"epochs = {10**20}"), "exceeds the maximum of 1,000,000"),
        (MINIMAL + "prefetch_batches = 100000", "data.prefetch_batches: 100000 exceeds the maximum of 1,000"),
        (MINIMAL.replace("epochs = 2", "epochs = 2\nseed = -1"), "seed: -1"),
        ("data = 3\n", "data must be a table"),
        ("optim = 3\n" + MINIMAL, "optim must be a table"),
    ],
)
def test_bad_file_is_rejected_with_file_and_key(text: str, expected: str) -> None:
    message = refusal(text)
    assert message.startswith("my.toml: ")
    assert expected in message


def test_indivisible_batch_is_rejected_with_a_valid_one() -> None:
    message = refusal(MINIMAL, "data.global_batch=100", "device.cores=8")
    assert "100 is not divisible by 8 cores; use 96" in message


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optim.lr=fast", "--set optim.lr=fast: optim.lr: expected `float`, got `str`"),
        ("device.cores=0", "--set device.cores=0: device.cores: 0 must be 1 or more"),
        ("optim.lrr=1", '--set optim.lrr=1: [optim] has no key "lrr"; did you mean "lr"?'),
        ("optim.epochs=3", '"epochs" belongs at the top of the file, before the first table'),
        ("lr=3", '--set lr=3: unknown key "lr"; "lr" is a key of [optim]'),
        ("report.batch_per_coer=3", 'did you mean "batch_per_core" of [data]?'),
        ('task="\\u0000"', "task: '\\x00' is not a task name"),
        ("data.x=" + "9" * 5000, "a number has too many digits"),
        ("data.x=" + "9" * 30, "data.x: an integer has at most 64 bits"),
        ("data.x=" + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("data.x=" + "[" * 50 + "]" * 50, "data: nested too deeply"),
        ("data.source=\udcff", "data.source: not valid UTF-8"),
        ("epochs", "expected key=value"),
        ("epochs.x=3", "is a value, not a table"),
        ("=3", "expected key=value"),
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_bad_override_is_rejected(override: str, expected: str) -> None:
    message = refusal(MINIMAL, override)
    assert expected in message
    assert message.startswith(f"--set {override}"[:40])


def test_override_that_makes_a_table_a_list_is_rejected() -> None:
    message = refusal(MINIMAL, "data=[1]", "data.batch_per_core=3")
    assert message == '--set data.batch_per_core=3: "data" is a value, not a table'


def test_errors_distinguish_file_and_overrides() -> None:
    assert refusal(MINIMAL + "[optim]\nlr = -1.0", "epochs=3").startswith("my.toml: optim.lr: ")
    assert config.source_of_key("my.toml", "data.batch_per_core", ["epochs=3", "data.batch_per_core=9"]) == (
        "--set data.batch_per_core=9"
    )

    rows, overrides = "y.csv row 3, column b: x is not a finite number", ["data.source=y.csv", "data.workers=1"]
    assert config.source_of_key("my.toml", "data", overrides, rows) == "--set data.source=y.csv"
    assert config.source_of_key("my.toml", "data", overrides[1:], rows) == "my.toml"
    assert config.source_of_key("my.toml", "data", overrides, 'no column "a" (data.workers)') == "--set data.workers=1"


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "x = " + "[" * 5000 + "]" * 5000], ids=["digits", "depth"])
def test_absurd_numbers_and_nesting_are_rejected(text: str) -> None:
    assert refusal(text).startswith("my.toml: not valid TOML: ")


def test_missing_file_suggests_a_similar_name(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").touch()
    with pytest.raises(ConfigError, match=r"digit\.toml: no such file; did you mean .*/digits\.toml\?"):
        config.load(tmp_path / "digit.toml")


def test_devices_pipes_and_huge_files_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(1 << 30)
    for path, why in (
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "pipe.toml", "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "huge.toml", "larger than"),
    ):
        with pytest.raises(ConfigError, match=why):
            config.load(path)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("cls", [RunConfig, *config.TABLES.values()])
def test_every_key_is_documented(cls: type[msgspec.Struct]) -> None:
    docs = field_docs(cls)
    assert [name for name in cls.__struct_fields__ if not docs.get(name)] == []


def test_sample_batches_need_no_padding() -> None:
    for path in SAMPLE.parent.glob("*.toml"):
        assert config.load(path).batch_per_core % 8 == 0, path.name
