"""Secrets are masked, other texts are unchanged, and both are fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded
from tests.cost import bounded
from tests.telemetry.test_journal import read_all
from tputui.telemetry import events as ev
from tputui.telemetry import redaction, rundir
from tputui.telemetry.redaction import MASK
from tputui.telemetry.reporter import Reporter

DRAWN = "a8f7e6d5c4b3a2918"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("password", "x"),
        ("db_password", "hunter2"),
        ("data.apiKey", "x"),
        ("API_KEY", "x"),
        ("--api-key", "x"),
        ("aws_secret_access_key", "x"),
        ("client_secret", "x"),
        ("credentials", "/home/me/key.json"),
        ("token", DRAWN),
        ("data.hf_token", DRAWN),
        ("tokens.auth", DRAWN),
        ("key", DRAWN),
        ("anything", "hf_AbCdEfGhIjKlMnOpQrSt"),
        ("anything", "ghp_AbCdEfGhIjKlMnOpQrStUv"),
        ("anything", "AKIAABCDEFGHIJKLMNOP"),
        ("anything", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"),
        ("anything", "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----"),
        ("path", "https://me:hunter2@host/data"),
        ("path", f"https://{DRAWN}@host/data"),
        ("path", "s3://bucket/x?X-Amz-Signature=dead"),
    ],
)
def test_secret_in_config_is_named_and_redacted(name: str, value: str) -> None:
    config = {"data": {"inner": [{name: value}]}}
    assert redaction.secret_keys(config) == [f"data.inner[0].{name}"]
    assert MASK in str(redaction.masked(config))
    assert "hunter2" not in str(redaction.masked(config))
    assert DRAWN not in str(redaction.masked(config))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pad_token", "<pad>"),
        ("token", "[MASK]"),
        ("max_tokens", "51200000000000000a1b2"),
        ("tokenizer", "bert-base-uncased-2024-x1"),
        ("key", "image_id"),
        ("label_key", "diagnosis_code_2019"),
        ("secret_column", "x"),
        ("monitor", "loss"),
        ("path", "/data/isic/2019/train_images/a1b2c3d4e5f6"),
        ("path", "https://host/data?page=3"),
        ("path", "ssh://git@host/x"),
        ("password", ""),
    ],
)
def test_non_secrets_are_unchanged(name: str, value: str) -> None:
    config = {name: value, "epochs": 3, "lr": 0.1, "seal": True, "none": None}
    assert redaction.secret_keys(config) == []
    assert redaction.masked(config) == config


def test_the_sample_configurations_hold_no_secret() -> None:
    assert redaction.secret_keys(recorded.CONFIG) == []


def test_command_line_in_a_config_is_redacted() -> None:
    config = {"command": ["python", "train.py", "--password", "hunter2", "--lr", "0.1"], "sizes": [1, 2]}
    shown = {"command": ["python", "train.py", "--password", MASK, "--lr", "0.1"], "sizes": [1, 2]}
    assert redaction.masked(config) == shown


def test_command_line_is_redacted_in_every_form() -> None:
    words = ["tputui", "run", "x.toml", "--set", "data.password=abc", "--api-key", "zzz", "--token", DRAWN]
    words += ["PASSWORD=abc", "https://u:p@h/x", "--set", "optim.lr=0.1", "--name", "token", "login", DRAWN]
    masked = redaction.masked_argv(words)
    assert masked == [
        *("tputui", "run", "x.toml", "--set", f"data.password={MASK}", "--api-key", MASK, "--token", MASK),
        *(f"PASSWORD={MASK}", f"https://{MASK}@h/x", "--set", "optim.lr=0.1", "--name", "token"),
        *("login", MASK),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("logging in with password=hunter2 now", f"logging in with password={MASK} now"),
        ("password: hunter2", f"password: {MASK}"),
        ("API_KEY='hunter2' python", f"API_KEY='{MASK}' python"),
        ("Authorization: Bearer abcdefghijklmnopqrst", f"Authorization: {MASK} {MASK}"),
        ("Authorization: Bearer short1", f"Authorization: {MASK} {MASK}"),
        ("authorization=Token abc def", f"authorization={MASK} {MASK} def"),
        ("GET https://h/p?access_token=hunter2&x=1", f"GET https://h/p?access_token={MASK}&x=1"),
        ("postgres://u:hunter2@h:5/d", f"postgres://{MASK}@h:5/d"),
        ("KeyError: 'password'", "KeyError: 'password'"),
        ("epoch 3 tokens=5123 loss: 0.5, key=4", "epoch 3 tokens=5123 loss: 0.5, key=4"),
        ("{'password': 'hunter2'}", f"{{'password': '{MASK}'}}"),
        ('{"user": "me", "api_key": "hunter2", "n": 1}', f'{{"user": "me", "api_key": "{MASK}", "n": 1}}'),
        (r"got \"{\\\"api_key\\\": \\\"hunter2\\\"}\"", rf"got \"{{\\\"api_key\\\": \\\"{MASK}\\\"}}\""),
        ("environ({'WANDB_API_KEY': 'hunter2', 'A': 'b'})", f"environ({{'WANDB_API_KEY': '{MASK}', 'A': 'b'}})"),
        ("password='hunter2 is long' next", f"password='{MASK}' next"),
        ("password = b'hunter2'", f"password = b'{MASK}'"),
        (r"password='it\'s hunter2' next", f"password='{MASK}' next"),
        ('password="hunter2 and cut', f'password="{MASK}'),
        ("\x1b[32mpassword\x1b[0m=\x1b[35mhunter2\x1b[0m ok", f"\x1b[32mpassword\x1b[0m=\x1b[35m{MASK}\x1b[0m ok"),
        ("\x1b[32mpassword\x1b[0m: \x1b[35m'hunter2'\x1b[0m", f"\x1b[32mpassword\x1b[0m: \x1b[35m'{MASK}'\x1b[0m"),
        ("PGPASSWORD=hunter2 psql", f"PGPASSWORD={MASK} psql"),
        ("MYSQL_PWD=hunter2 mysql", f"MYSQL_PWD={MASK} mysql"),
        ("password:hunter2", f"password:{MASK}"),
        ("os.environ['PGPASSWORD'] = 'hunter2'", f"os.environ['PGPASSWORD'] = '{MASK}'"),
        ("https://user:p@hunter2@host/x", f"https://{MASK}@host/x"),
        ("ValueError: password=hunter2", f"ValueError: password={MASK}"),
        ("args: Namespace(lr=0.1, db_password='hunter2')", f"args: Namespace(lr=0.1, db_password='{MASK}')"),
    ],
)
def test_secrets_in_text_are_redacted(text: str, shown: str) -> None:
    assert redaction.masked_text(text) == shown


KEY = [
    "-----BEGIN PRIVATE KEY-----",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    "MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu",
    "NMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s",
    "CLOyS56YyCFGeJZa",
    "-----END PRIVATE KEY-----",
]


def leaks(text: str) -> list[str]:
    """The lines of the key that are in a text."""
    return [line for line in KEY[1:-1] if line in text]


@pytest.mark.parametrize(
    "lines",
    [
        KEY,
        [f"key: {KEY[0]}", *KEY[1:]],
        [f"    {line}" for line in KEY],
        [f"-{line}" for line in KEY],
        [f"+{line}" for line in KEY],
        [f"2026-01-02 03:04:{index:02d} INFO {line}" for index, line in enumerate(KEY)],
        [f'    "{line}\\n"' for line in KEY],
        [f'{{"message": "{line}"}}' for line in KEY],
        [repr("\n".join(KEY))],
        [repr(KEY)],
        [KEY[0], "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00", "", *KEY[1:]],
        [line.replace("PRIVATE KEY", "OPENSSH PRIVATE KEY") for line in KEY],
        ["-----BEGIN PGP PRIVATE KEY BLOCK-----", "", *KEY[1:-1], "=aB3d", "-----END PGP PRIVATE KEY BLOCK-----"],
        [f"{line}\r" for line in KEY],
        KEY[2:],
        KEY[:-2],
        [f"ValueError: {KEY[0]}", *KEY[1:-1]],
        [f"[rank0]:ValueError: {KEY[0]}", *[f"[rank0]:{line}" for line in KEY[1:]]],
    ],
    ids=str,
)
def test_no_line_of_a_private_key_gets_through(lines: list[str]) -> None:
    whole = ["epoch 1 loss 0.5", *lines, "epoch 2 loss 0.4"]
    text = redaction.masked_text("\n".join(whole))
    assert (leaks(text), len(text.split("\n"))) == ([], len(whole))
    assert (text.split("\n")[0], text.split("\n")[-1]) == (whole[0], whole[-1])
    assert redaction.masked_text(text) == text
    assert redaction.masked_lines(whole) == text.split("\n")


def test_keys_of_ranks_that_print_at_once_are_masked_and_nothing_else() -> None:
    keys = redaction.KeyMasker()
    steps = [f"[rank{rank}]: step {index} loss=0.{index}" for index in range(len(KEY) + 2) for rank in (0, 1)]
    found = []
    for index, step in enumerate(steps):
        rank, late = index % 2, index % 2
        of_key = index // 2 - late
        found += keys.masked([step])
        if 0 <= of_key < len(KEY):
            found += keys.masked([f"[rank{rank}]: {KEY[of_key]}"])
    assert leaks("\n".join(found)) == []
    assert [line for line in found if MASK not in line] == steps
    assert keys.masked(["[rank1]: done", "done"]) == ["[rank1]: done", "done"]


def test_blank_lines_and_short_words_of_other_ranks_are_unchanged_within_a_key() -> None:
    lines = ["[rank0]:", "[rank0]: ", "[rank0]:    ^^^^", "[rank1]: done", "[0]:", "Failures:"]
    keys = redaction.KeyMasker()
    keys.masked([f"[rank0]:{KEY[0]}"])
    assert keys.masked(lines) == lines
    assert keys.masked([f"[rank0]:{KEY[1]}"]) == [f"[rank0]:{MASK}"]


def test_a_private_key_without_an_end_masks_only_the_next_lines() -> None:
    keys = redaction.KeyMasker()
    assert keys.masked([*KEY[:-1], "step 3: loss=0.5"]) == [*[MASK] * 5, "step 3: loss=0.5"]
    keys.masked(["step"] * redaction.KEY_LINES_MAX)
    assert keys.masked(["done", *KEY[1:2]]) == ["done", *KEY[1:2]]


@pytest.mark.parametrize("line", ["no -----BEGIN CERTIFICATE----- here", "a PRIVATE KEY is missing", "-----", "====="])
def test_other_lines_about_keys_are_unchanged(line: str) -> None:
    assert redaction.masked_lines([line, "done"]) == [line, "done"]


@pytest.mark.parametrize(
    "start",
    ["hf_oauth_", "api_org_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", "wandb_v1_", "gldt-", "glcbt-", "hvs.",
     "dckr_pat_", "GOCSPX-", f"SG.{DRAWN}.", "https://hooks.slack.com/services/T0/B0/", "AGE-SECRET-KEY-1",
     "https://discord.com/api/webhooks/1/", "https://api.telegram.org/bot123:"],
)  # fmt: skip
def test_tokens_of_services_are_known_by_their_form(start: str) -> None:
    rest = (DRAWN * 3).upper()
    shown = redaction.masked_text(f"401 for {start}{rest}: denied")
    assert rest not in shown
    assert (shown.startswith("401 for "), shown.endswith(" denied")) == (True, True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"WANDB_API_KEY\t{DRAWN}", f"WANDB_API_KEY\t{MASK}"),
        (f"export HF_HUB_TOKEN             {DRAWN} ok", f"export HF_HUB_TOKEN             {MASK} ok"),
        (f"\u2502 WANDB_API_KEY \u2502 {DRAWN} \u2502", f"\u2502 WANDB_API_KEY \u2502 {MASK} \u2502"),
        (f"[('api_key', '{DRAWN}'), ('lr', 1)]", f"[('api_key', '{MASK}'), ('lr', 1)]"),
        (f"the password is {DRAWN}", f"the password is {MASK}"),
        (f"machine api.wandb.ai login user password {DRAWN}", f"machine api.wandb.ai login user password {MASK}"),
        (f"wandb login {DRAWN}", f"wandb login {MASK}"),
        ("passwords: ['hunter2', 'b c'], x=['a']", f"passwords: ['{MASK}', '{MASK}'], x=['a']"),
        ("password=['hunter2 and cut", f"password=['{MASK}"),
        (f"tokens.auth_token_2={DRAWN}", f"tokens.auth_token_2={MASK}"),
        ("api_key_2=hunter2", f"api_key_2={MASK}"),
        ("password\uff1ahunter2", f"password\uff1a{MASK}"),
        ("Set-Cookie: sessionid=hunter2; Path=/", f"Set-Cookie: {MASK}"),
        ("the password is required for convolutional_layers", None),
        ("Missing key layer1_conv2_bn3_weight_q4, auth: {'x': 1}, KeyError: 'secret' in {'a': 'b'}", None),
        ("cookies=5 cookie_cutter: 3 login page_of_the_web_site ('password', 'name')", None),
    ],
)
def test_secrets_beside_their_names_and_in_lists_are_redacted(text: str, shown: str | None) -> None:
    found = redaction.masked_text(text)
    assert found == (text if shown is None else shown)
    assert redaction.masked_text(found) == found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("+ python train.py --api-key plain12 --lr 1", f"+ python train.py --api-key {MASK} --lr 1"),
        ("run --password=hunter --x=1", f"run --password={MASK} --x=1"),
        ("run --db.password 'hunter2'", f"run --db.password '{MASK}'"),
        ("usage: train.py [--password PASSWORD] [--api-key API_KEY]", None),
        ("--password is required; --api-key <key>, --secret $SECRET --password -v", None),
        ("--pad-token <pad> --token type --key label_2", None),
    ],
)
def test_options_of_printed_commands_are_redacted(text: str, shown: str | None) -> None:
    assert redaction.masked_text(text) == (text if shown is None else shown)


def test_command_of_a_shell_is_redacted() -> None:
    words = ["sh", "-c", "PASSWORD=abc python train.py --api-key correcthorse --lr 1"]
    assert redaction.masked_argv(words) == ["sh", "-c", f"PASSWORD={MASK} python train.py --api-key {MASK} --lr 1"]


# Lines printed by training, torch and other libraries, with words that also occur in names of secrets.
ORDINARY = """\
epoch 3/10 step 420 loss: 0.4132 acc=0.91 lr=3e-05 tokens/s: 51200 num_tokens=5123000
KeyError: 'token'
KeyError: 'password'
RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "conv1.weight", "fc.bias".
Unexpected key(s) in state_dict: "module.head.key_proj.weight", "module.attn.in_proj_key.bias".
size mismatch for attn.key.weight: copying a param with shape torch.Size([768, 768]) from checkpoint
attn.key.weight: torch.Size([768, 768]) key_padding_mask=None num_key_value_heads=8 head_key=query_layer_12
tokenizer: bert-base-uncased pad_token='[PAD]' eos_token="</s>" bos_token: <s> pad_token_id=0 max_new_tokens: 512
Special tokens have been added in the vocabulary, make sure the word embeddings are fine-tuned: token=True
basic ResidualBlockWithBottleneck is used; basic convolutional_block_number
Basic block: layer1.0.conv1 Conv2d(3, 64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3), bias=False)
model sk-learn-contrib-style-estimator, task-specific_head_of_the_network, risk-adjusted-weighted-loss
W1122 10:00:00.000000 140 torch/distributed/run.py:792] Setting OMP_NUM_THREADS=1 for each process
[rank0]:[W1122 10:00:00 ProcessGroupNCCL.cpp:1250] Warning: process group has NOT been destroyed before exit
torch._dynamo hit config.cache_size_limit (8) function: 'forward' (model.py:12) reasons: ___check_obj_id(L['key'], 9)
UserWarning: authorized access to cache: /home/me/.cache/huggingface/hub/models--bert/snapshots/86b5e0934494bd15c9632b12
PWD=/home/me/project OLDPWD=/home/me HOME=/root KEYBOARD=us AUTH_BACKEND=ldap
Authentication ok, passing through 3 stages; pass 2: 0.71; compass: north; bypass=1; key=value; keys: a, b
checkpoint key: sha256 a1b2, monkey=5, secretary: present, secrets_found=0, token_type_ids shape: (8, 128)
password: str, token: Optional[str] = None, secret=None, use_auth_token=False, password=True
https://user@host/path git@github.com:org/repo.git ssh://git@host/x http://host:8080/a@b?page=3
time: 10:15:30 step:5 loss:0.3@core:4 ratio=1:2 A->B: ok {'lr': 0.001, 'momentum': 0.9} {"step": 4, "loss": 0.1}
""".splitlines()


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_training_output_is_unchanged(line: str) -> None:
    assert redaction.masked_text(line) == line
    coloured = f"\x1b[36m{line}\x1b[0m"
    assert redaction.masked_text(coloured) == coloured


QUOTES = st.sampled_from(["", "'", '"'])
NAMES = st.sampled_from(
    ["password", "DB_PASSWORD", "PGPASSWORD", "apiKey", "wandb.api_key", "client-secret", "auth_token"]
)
MARKS = st.sampled_from(["=", " = ", ": ", ":", " : ", "=>"])
PLAIN = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), max_size=30)


@given(NAMES, QUOTES, MARKS, QUOTES, PLAIN, PLAIN, st.booleans())
def test_no_form_of_secret_gets_through(
    name: str, name_quote: str, mark: str, quote: str, before: str, after: str, blanks: bool
) -> None:
    secret = "hunter2 and hunter2" if blanks and quote else "hunter2"
    text = f"{before} {name_quote}{name}{name_quote}{mark}{quote}{secret}{quote} {after.replace('hunter2', '')}"
    assert "hunter2" not in redaction.masked_text(text)
    assert redaction.masked_text(text).endswith(f"{quote} {after.replace('hunter2', '')}") or MASK in after


PIECES = ["password", "token", "api_key", "=", ":", " ", "'", '"', "\\", "\x1b[1m", "https://", "@", "u:p", "bearer ",
          "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "MIIEvQIBADANBgkq", "--", "[rank0]: ",
          MASK, "hunter2", "a8f7e6d5c4b3a2918", "{", "}", ",", "\n", "basic ", "?sig=", "&"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_redacting_pieces_is_idempotent(text: str) -> None:
    once = redaction.masked_text(text)
    assert redaction.masked_text(once) == once


@given(st.text(max_size=300))
def test_redaction_is_idempotent(text: str) -> None:
    once = redaction.masked_text(text)
    assert redaction.masked_text(once) == once


@pytest.mark.parametrize(
    "piece",
    [
        "token a",
        "a://",
        "://a.",
        "key a=b ",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n",
        "x -----BEGIN PRIVATE KEY-----\nMIIEvQIB\n-----END PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\nMII\n",
        "\\n\\",
        "--password ",
        "eyJa",
        "eyJaaaaaaaa.",
        "token_",
        "?aa",
        "A-=",
        "password='",
        "a:",
        '\\"',
        "\x1b[1m",
        "auth: ",
        "token:",
        "token:[",
        "token:['",
        "password:[",
        "api_key a8f7e6d5c4b3a2918 ",
        "api_key | ",
        "login ",
    ],
)
def test_redaction_time_is_bounded(piece: str) -> None:
    text = "key sk- " + piece * (200_000 // len(piece))
    with bounded(20.0):
        redaction.masked_text(text)


def test_no_secret_gets_into_manifest_or_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["train.py", "--password", "hunter2"]
    config = {"wandb": {"api_key": "hunter2"}, "url": "https://me:hunter2@host"}
    manifest = rundir.Manifest(
        run="a", created=1.0, version="1", config_path="train.py", config=config, argv=argv, cwd="/home/user"
    )
    with monkeypatch.context() as environment:
        environment.setenv("HF_TOKEN", "hf_hunter2hunter2hunter2")
        run_dir = rundir.create(tmp_path, manifest)
        reporter = Reporter(run_dir, "worker")
    reporter.emit(ev.RunStarted(t=1.0, run="a", config=config, argv=argv))
    reporter.emit(ev.WorkerStarted(t=1.0, pid=1, argv=argv))
    reporter.emit(ev.LogWritten(t=1.0, line="password=hunter2"))
    reporter.emit(ev.WarningRaised(t=1.0, text="https://me:hunter2@host is slow"))
    why = "401 for https://me:hunter2@host"
    reporter.emit(ev.FailureRaised(t=1.0, error="E", message=why, traceback="password='hunter2'", phase="data", step=1))
    reporter.emit(ev.TrainingEnded(t=1.0, outcome="failed", step=1, reason=why))
    reporter.emit(ev.RunEnded(t=1.0, outcome="failed", exit_code=3, reason=why))
    assert reporter.close()
    records, damage = read_all(run_dir / "worker-0.jsonl")
    assert (len(records), damage) == (8, [])
    for path in run_dir.rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path
