"""The frames between a viewer and a host: whole messages whatever way the bytes are cut, and bounded for any bytes."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tputui.remote import protocol as p
from tputui.remote.address import InvalidAddress, parse_address, parse_host, parse_hosts
from tputui.remote.run_list import CannotList, list_runs
from tputui.remote.ssh_command import PROGRAM_VARIABLE, InvalidProgram, argv_of, failure, remote_command

WRITERS = st.sampled_from(["supervisor-0", "worker-255", "rank-2047", "logs-3"])
TO_VIEWER = st.one_of(
    st.builds(
        p.Data, writer=WRITERS, form=st.just("plain"), offset=st.integers(0, 2**40), data=st.binary(max_size=2_000),
        end=st.booleans(),
    ),
    st.builds(p.File, path=st.just("run.json"), content=st.binary(max_size=500)),
    st.builds(p.Found, writer=WRITERS, head_crc=st.integers(0, 2**32 - 1), sealed=st.booleans()),
    st.builds(p.Pong, t=st.floats(allow_nan=False), host_t=st.floats(allow_nan=False)),
    st.builds(p.StreamRefused, reason=st.text(max_size=50)),
    st.builds(p.Listed),
)  # fmt: skip
TO_HOST = st.one_of(
    st.builds(p.Ping, t=st.floats(allow_nan=False)),
    st.builds(p.Submit, id=st.just("1-1"), content=st.binary(max_size=200)),
    st.builds(
        p.Open, version=st.just(1), run=st.text(max_size=30), runs_dir=st.none() | st.text(max_size=9),
        summary=st.booleans(), have=st.just([]),
    ),
)  # fmt: skip


def received_by(reader: p.HostFrames, data: bytes) -> list[p.ToViewer]:
    """The messages that are complete with some bytes."""
    reader.feed(data)
    messages: list[p.ToViewer] = []
    while (frame := reader.next_frame()) is not None:
        messages += frame
    return messages


@given(st.lists(st.lists(TO_VIEWER, max_size=4), max_size=6), st.integers(1, 400))
@settings(max_examples=15, deadline=None)
def test_the_viewer_gets_what_the_host_sent_however_the_bytes_are_cut(
    frames: list[list[p.ToViewer]], piece: int
) -> None:
    packer, reader = p.Packer(), p.HostFrames()
    sent = b"".join(packer.pack(frame) for frame in frames)
    received = [message for at in range(0, len(sent), piece) for message in received_by(reader, sent[at : at + piece])]
    assert received == [message for frame in frames for message in frame]


@given(st.lists(TO_HOST, max_size=10), st.integers(1, 100))
@settings(max_examples=60, deadline=None)
def test_the_host_gets_what_the_viewer_sent_however_the_bytes_are_cut(messages: list[p.ToHost], piece: int) -> None:
    sent = b"".join(map(p.pack, messages))
    reader = p.ViewerFrames()
    assert [one for at in range(0, len(sent), piece) for one in reader.feed(sent[at : at + piece])] == messages


@given(st.binary(max_size=400))
@settings(max_examples=200, deadline=None)
def test_any_other_bytes_are_waited_for_or_refused(data: bytes) -> None:
    with contextlib.suppress(p.ProtocolError):
        assert received_by(p.HostFrames(), data) == []
    with contextlib.suppress(p.ProtocolError):
        assert p.ViewerFrames().feed(data) == []


def test_a_few_bytes_cannot_claim_gigabytes() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=p.WINDOW_LOG)
    bomb = zstandard.ZstdCompressor(compression_params=parameters).compress(bytes(1 << 28))
    assert len(bomb) < 100_000
    for plain_bytes in (1_000, p.FRAME_BYTES_MAX):
        with pytest.raises(p.ProtocolError, match="another size"):
            received_by(p.HostFrames(), struct.pack("<II", plain_bytes, len(bomb)) + bomb)
    with pytest.raises(p.ProtocolError, match="too long"):
        received_by(p.HostFrames(), struct.pack("<II", 1 << 31, 10))
    with pytest.raises(p.ProtocolError, match="too long"):
        p.ViewerFrames().feed(struct.pack("<I", 1 << 30))


def test_of_many_frames_that_unpack_to_megabytes_one_is_unpacked_at_a_time() -> None:
    packer, reader = p.Packer(), p.HostFrames()
    zeros = p.Data(writer="worker-0", form="plain", offset=0, data=bytes(8 << 20), end=False)
    sent = b"".join(packer.pack([zeros]) for _ in range(4))
    assert len(sent) < 64 << 10
    reader.feed(sent)
    for _ in range(4):
        assert reader.next_frame() == [zeros]
    assert reader.next_frame() is None


def test_an_unknown_message_is_refused() -> None:
    encoded = msgspec.msgpack.encode(["Execute", "rm"])
    with pytest.raises(p.ProtocolError, match="cannot be read"):
        p.ViewerFrames().feed(struct.pack("<I", len(encoded)) + encoded)


@pytest.mark.parametrize("name", ["../worker-0", "worker-0/..", "worker", "worker-01", "run.json", "worker-0\n", ""])
def test_only_names_of_journals_are_journals(name: str) -> None:
    assert not p.is_writer(name)


@pytest.mark.parametrize(
    "path",
    ["../run.json", "/run.json", "requests/../x-1.json", "requests/1-1.json\n", "pictures/epoch-0001/../../x.png",
     "pictures/epoch-0001/.png", "checkpoints/last.pt", "places/a.jsonl", "link.json"],
)  # fmt: skip
def test_only_small_files_of_a_run_are_side_files(path: str) -> None:
    assert not p.is_side_file(path)


def test_addresses() -> None:
    address = parse_address("ssh://me@tpu-vm.example:2222/digits-1")
    assert (str(address), address.run) == ("ssh://me@tpu-vm.example:2222/digits-1", "digits-1")
    assert parse_address("ssh://[2001:db8::1]:22/r").hosts[0].name == "2001:db8::1"
    assert parse_address("ssh://vm//data/runs/r/").run == "/data/runs/r"
    assert [str(host) for host in parse_hosts("a, b@c:9,a")] == ["a", "b@c:9"]
    assert [str(host) for host in parse_hosts("@f", lambda path, most: b"a\n# all\nb # second\n\n")] == ["a", "b"]


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "a b", "a;b", "-l@a", "a:99999", "@@", "a/../b", "$(x)", "u@-h"])
def test_what_is_no_host_never_reaches_ssh(text: str) -> None:
    with pytest.raises(InvalidAddress, match="not a host"):
        parse_host(text)


@pytest.mark.parametrize("command", ["stream", "runs --json --all"])
def test_the_command_on_the_host_finds_tputui_of_the_user(tmp_path: Path, command: str) -> None:
    without = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "tputui").exists()]
    environ = {"HOME": str(tmp_path), "PATH": os.pathsep.join(without)}
    words = ["sh", "-c", remote_command({}, command)]
    assert subprocess.run(words, env=environ, capture_output=True).returncode == 127
    program = tmp_path / ".local" / "bin" / "tputui"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o700)
    assert subprocess.run(words, env=environ, capture_output=True).stdout.decode() == f"{command}\n"


def test_a_cache_that_ssh_would_interpret_is_not_used_for_shared_connections(tmp_path: Path) -> None:
    for folder, is_shared in (("cache", True), ("my cache", False), ("100%h", False)):
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="t") as short:
            environ = {"XDG_CACHE_HOME": f"{short}/{folder}"}
            words = argv_of(parse_host("tpu-vm"), environ, shared=True)
        assert any("ControlPath" in word for word in words) is is_shared


def test_a_list_of_runs_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec yes\n")
    ssh.chmod(0o700)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / ("c" * 100))}
    with pytest.raises(CannotList, match="its list of runs is longer than"):
        list_runs(parse_host("tpu-vm"), None, environ)


def test_a_list_of_runs_is_found_after_what_a_login_shell_prints(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    row = '[{"run": "r", "dir": "/runs/r", "created": 1.0, "state": "done"}]'
    ssh.write_text(f"#!/bin/sh\necho 'Welcome [maintenance at noon]'\necho '[news] none'\necho '{row}'\n")
    ssh.chmod(0o700)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / ("c" * 100))}
    assert [run.run for run in list_runs(parse_host("tpu-vm"), None, environ)] == ["r"]
    ssh.write_text("#!/bin/sh\necho '[news] none'\necho '[]'\n")
    assert list_runs(parse_host("tpu-vm"), None, environ) == []


def test_a_machine_without_ssh_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotList, match=r"^tpu-vm: there is no program `ssh` .*: install OpenSSH$"):
        list_runs(parse_host("tpu-vm"), None, {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})


def test_an_invalid_path_of_tputui_is_no_fault_of_the_list(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgram):
        list_runs(parse_host("vm"), None, {"XDG_CACHE_HOME": str(tmp_path), PROGRAM_VARIABLE: "a b"})


def test_a_path_of_tputui_that_a_shell_would_interpret_is_refused() -> None:
    assert remote_command({PROGRAM_VARIABLE: "~/venv/bin/tputui"}) == "exec sh -c 'exec ~/venv/bin/tputui stream'"
    for program in ("tputui; reboot", "tputui'"):
        with pytest.raises(InvalidProgram):
            remote_command({PROGRAM_VARIABLE: program})


@pytest.mark.parametrize(
    "address", ["vm", "me@vm", "vm:2222", "me@vm.example:2222", "[::1]", "me@[fe80::1%eth0]:2222", "[2001:db8::1]:22"]
)
@pytest.mark.parametrize("stderr", ["Host key verification failed.", "me@vm: Permission denied (publickey)."])
def test_advised_commands_of_ssh_reach_the_host(address: str, stderr: str) -> None:
    host = parse_host(address)
    sentence = failure(host, 255, stderr)
    assert sentence.startswith(f"{address}: ")
    [command] = [part for part in sentence.split("`") if part.startswith("ssh ")]
    ssh, *words = shlex.split(command.removesuffix(" true"))
    found = subprocess.run([ssh, "-F", "/dev/null", "-G", *words], capture_output=True, text=True, check=True)
    settings = dict(line.partition(" ")[::2] for line in found.stdout.splitlines())
    assert (settings["hostname"], settings["port"]) == (host.name, str(host.port or 22))
    assert host.user is None or settings["user"] == host.user


def test_only_exit_codes_of_the_shell_mean_that_tputui_is_not_there() -> None:
    host = parse_host("vm")
    for code in (126, 127):
        assert "tputui was not found there" in failure(host, code, "sh: 1: exec: tputui: not found")
    assert (
        failure(host, 2, "welcome\ntputui: --runs-dir /x: no such directory") == "vm: --runs-dir /x: no such directory"
    )
    assert failure(host, 1, "\n") == "vm: tputui ended there with exit code 1"
    error = "ModuleNotFoundError: the module msgspec was not found"
    assert failure(host, 1, error) == f"vm: tputui ended there with exit code 1: {error}"


@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "zsh"])
@pytest.mark.parametrize("program", ["", "/no/such/tputui", "/etc"])
def test_exit_code_of_a_missing_program_is_that_of_the_shell(tmp_path: Path, shell: str, program: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"{shell} is not installed")
    for name in ("sh", shell):
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).symlink_to(path)
    environ = {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    command = remote_command({PROGRAM_VARIABLE: program})
    assert subprocess.run([path, "-c", command], env=environ, capture_output=True).returncode in (126, 127)


@pytest.mark.parametrize("text", ["ssh://vm", "ssh://vm/", "ssh://vm/a b", "ssh://vm/a/b", "ssh://vm/$(x)", "ssh:///r"])
def test_what_is_no_run_is_refused(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_address(text)
