"""Hostile run directories: recorded runs, damaged by a seeded generator.

Half of the damage is to bytes, as disks and copies do it; half is forged, with checksums that match, as an enemy would.
"""

from __future__ import annotations

import base64
import json
import os
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import recorded
from tputui.telemetry.codec import journal_id_of
from tputui.telemetry.compressed import CompressionError, seal

NUMBERS = (
    *("0", "-1", "1", "3", "255", "1e999", "-1e999", "1e308", "-0.0", "5e-324", "0.1", "-2147483649", "4294967296"),
    *("9007199254740993", "9223372036854775807", "-9223372036854775807", "9223372036854775808", "1" + "0" * 400),
    *("1" + "0" * 5000, "NaN", '"NaN"', '"Infinity"', '"-Infinity"', "1760000000.5", "253402300800", "1e20"),
)
"""JSON values; some are invalid."""
TEXTS = (
    *(
        '""',
        '"\\u0000"',
        '"\\u001b[2J\\u001b]0;owned\\u0007"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"../../../etc/passwd"',
    ),
    *('"/etc/passwd"', '"\\u202egpj.exe"', '"worker-0"', '"spmd"', '"zAAAA"', '"zeJw="', '"r"', '"rAAAAAA=="'),
    *('"done"', '"loss"', '"' + "x" * 70_000 + '"', '"a\\nb\\rc\\td"', '"\\u009b31m"', '"%s %d {0} {x!r} [red]"'),
)
NESTED = ("null", "true", "[]", "{}", "[[]]", "[1,2,3]", '{"a":1}', "[" * 30 + "]" * 30, "[" * 900 + "]" * 900)
DEEP = ('{"a":' * 100_000 + "1" + "}" * 100_000, "[" * 100_000 + "]" * 100_000)
STEPS = b'{"k":"StepsRecorded","t":1,"first":1,"mean":1,"min":1,"max":1,"block":"",'
WRITERS = ("worker-0", "supervisor-0", "observer-0")


def forged(body: bytes, seq: bytes, journal_id: str = "") -> bytes:
    """A line with any body and number whose checksum matches; with an id, one of that journal."""
    line = body.rstrip(b"}\n") if body.endswith(b"}\n") else body
    if journal_id:
        line += b',"j":"%s"' % journal_id.encode()
    line += b',"q":' + seq
    return line + b',"c":"%08x"}\n' % zlib.crc32(line)


def hostile_value(chance: random.Random) -> str:
    """JSON, or nearly, that no reporter writes."""
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(NUMBERS)
    if kind < 0.8:
        return chance.choice(TEXTS)
    return chance.choice(NESTED) if kind < 0.99 else chance.choice(DEEP)


def _forge(content: bytes, chance: random.Random) -> bytes:
    """Replaces values of some events at any depth, with correct checksums."""
    lines = content.splitlines(keepends=True)
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        index = chance.randrange(len(lines))
        fields = _fields(lines[index])
        if fields is None:
            continue
        seq, journal_id = str(fields.pop("q")).encode(), str(fields.pop("j", ""))
        fields.pop("c", None)
        marks: dict[str, str] = {}
        for _ in range(chance.choice((1, 1, 2, 4))):
            _replace(fields, chance, marks)
        body = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        for mark, value in marks.items():
            body = body.replace(f'"{mark}"', value)
        if chance.random() < 0.1:
            seq = chance.choice((b"-5", b"0", b"+7", b"1_0", b"9" * 15, b"9" * 19, b"", b" 3", b"\xd9\xa3"))
        lines[index] = forged(body[:-1].encode("utf-8", "surrogatepass"), seq, journal_id)
    return b"".join(lines)


def _replace(fields: Any, chance: random.Random, marks: dict[str, str]) -> None:
    while fields:
        key = chance.choice(list(fields)) if isinstance(fields, dict) else chance.randrange(len(fields))
        inner = fields[key]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.7:
            fields = inner
            continue
        mark = f"@@{len(marks)}@@"
        marks[mark] = hostile_value(chance)
        fields[key] = mark
        return


def _claim(content: bytes, chance: random.Random) -> bytes:
    """Blocks that claim or hold far more values than their lines."""
    lines = content.splitlines(keepends=True)
    packed = zlib.compress(bytes(chance.choice((1 << 10, 1 << 20, 32 << 20))), 9)
    block = "z" + base64.b64encode(packed).decode()
    n, cores = chance.choice(((1, 1), (1 << 22, 1), (256, 2048), (1 << 40, 1 << 20), (-1, 8), (0, 0), (8, -8), (3, 7)))
    first, greatest, bad = chance.choice((1, -9, 1 << 62)), chance.choice(("0.9", "-3")), chance.choice((0, 1, -1, 5))
    body = f'{{"k":"StepsRecorded","t":{recorded.T0 + 6},"first":{first},"n":{n},"cores":{cores},'
    body += f'"mean":0.5,"min":0.1,"max":{greatest},"bad":{bad},"block":"{block}"'
    copies = chance.choice((1, 3))
    index = chance.randrange(1, len(lines))
    seq = str(index).encode()
    lines[index:index] = [forged(body.encode(), seq, journal_id_of(lines) or "")] * copies
    return b"".join(lines)


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 3, 50))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _cut(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content) + 1)
    return content[:start] if chance.random() < 0.5 else content[:start] + content[start + chance.randrange(2_000) :]


def _repeat(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    piece = content[start : start + chance.randrange(5_000)]
    offset = chance.randrange(len(content))
    return content[:offset] + piece * chance.choice((1, 2, 30)) + content[offset:]


def _shuffle(content: bytes, chance: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    chance.shuffle(lines)
    return b"".join(lines)


def _insert(content: bytes, chance: random.Random) -> bytes:
    size = chance.choice((1, 100, 5_000, 2 << 20))
    junk = chance.choice((b"\0", b"\n", b"\xff\xfe", b"[", b'{"a":', b"TPUS", b"\x1b[2J", b" "))
    offset = chance.randrange(len(content) + 1)
    filling = chance.randbytes(size) if chance.random() < 0.3 else (junk * size)[:size]
    return content[:offset] + filling + content[offset:]


def _shift(content: bytes, chance: random.Random) -> bytes:
    """A clock that is set back or forth in the middle of a run."""
    lines = content.splitlines(keepends=True)
    by, start = chance.choice((-1e9, -3600.0, -1.0, 3600.0, 1e9)), chance.randrange(len(lines))
    for index in range(start, len(lines)):
        fields = _fields(lines[index])
        if fields is not None and isinstance(fields.get("t"), float):
            seq, journal_id = str(fields.pop("q")).encode(), str(fields.pop("j", ""))
            fields.pop("c", None)
            fields["t"] += by
            lines[index] = forged(json.dumps(fields, separators=(",", ":"))[:-1].encode(), seq, journal_id)
    return b"".join(lines)


def _fields(line: bytes) -> dict[str, Any] | None:
    """The fields of a line, if it is still JSON."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and "q" in fields else None


BYTES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_flip, _cut, _repeat, _insert)
LINES: tuple[Callable[[bytes, random.Random], bytes], ...] = (_forge, _forge, _forge, _claim, _shuffle, _shift)


def sealed_forgery(chance: random.Random) -> bytes:
    """A sealed journal with frames that match their checksums but that no writer would write."""
    import zstandard

    frames = b""
    for _ in range(chance.choice((1, 3))):
        lines = chance.choice(
            (
                b"".join(forged(b'{"k":"LogWritten","t":1,"line":"a"', str(seq).encode()) for seq in range(20)),
                forged(
                    b'{"k":"StepsRecorded","t":1,"first":1,"n":-1,"cores":9,"mean":1,"min":1,"max":1,"block":""', b"0"
                ),
                forged(
                    b'{"k":"StepsRecorded","t":1,"first":1,"n":99999999,"cores":99999,"mean":1,"min":1,"max":1,"block":""',
                    b"0",
                ),
                bytes(chance.choice((10, 100 << 20))),
                b"\n" * 1000,
            )
        )
        compress = zstandard.ZstdCompressor(level=1).compress
        values = compress(bytes(chance.choice((0, 3, 4096, 64 << 20))))
        if chance.random() < 0.3:
            # A frame whose header claims a terabyte: magic, single segment with an 8-byte size, one empty raw block.
            values = struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 40) + b"\x01\x00\x00"
        text = compress(lines)
        head = struct.pack("<III", len(values), len(text), chance.choice((lines.count(b"\n"), 1, 0, 4096, 2**32 - 1)))
        crc = zlib.crc32(head + values + text)
        frames += struct.pack("<II4sI", 0x184D2A54, 20 + len(values), b"TPUS", crc) + head + values + text
    return frames


def hostile_run(parent: Path, seed: int) -> Path:
    """A damaged run; the same for the same seed."""
    chance = random.Random(seed)
    run_dir = recorded.write_run(parent, ended=chance.random() < 0.7)
    recorded.write_journal(run_dir / "observer-0.jsonl", recorded.observer_events())
    for writer in WRITERS:
        path = run_dir / f"{writer}.jsonl"
        content = path.read_bytes()
        for damage in chance.sample(LINES, chance.choice((0, 1, 2))):
            content = damage(content, chance) if content.count(b"\n") > 2 and content.isascii() else content
        path.write_bytes(content)
        if chance.random() < 0.15:
            _sealed(path, chance)
            continue
        for damage in chance.sample(BYTES, chance.choice((0, 0, 1, 2))):
            content = damage(content, chance) if content else content
        path.write_bytes(content)
    if chance.random() < 0.2:
        manifest = run_dir / "run.json"
        manifest.write_bytes(chance.choice((_flip, _cut, _insert))(manifest.read_bytes(), chance))
    if chance.random() < 0.1:
        (run_dir / "run.json").write_text(f'{{"run": "a", "created": 1, "config": {hostile_value(chance)}}}')
    _strange_file(run_dir, chance)
    return run_dir


def _sealed(path: Path, chance: random.Random) -> None:
    try:
        target = seal(path)
    except CompressionError:
        return
    content = target.read_bytes()
    if chance.random() < 0.5:
        content = chance.choice(BYTES)(content, chance)
    if chance.random() < 0.5:
        content += sealed_forgery(chance)
    target.write_bytes(content)


def _strange_file(run_dir: Path, chance: random.Random) -> None:
    """Something in the directory that is no journal and is called like one, or a request that is none."""
    kind = chance.randrange(12)
    path = run_dir / chance.choice(("rank-1.jsonl", "rank-1.jsonl.zst", "requests/0-1.json"))
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(path.name)
    elif kind == 3:
        path.symlink_to(chance.choice(("/dev/zero", "/dev/tty", "nowhere", "/etc/passwd", "..")))
    elif kind == 4:
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == 5:
        path.write_bytes(sealed_forgery(chance))
    elif kind == 6:
        path.write_text('{"id": ' + chance.choice((*NUMBERS, *TEXTS, *DEEP)) + "}")
