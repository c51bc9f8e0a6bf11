"""Files under the name of a checkpoint that are none, by what they are."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from typing import Any


class Greeting:
    """A class of a user, in a pickle."""


class Caller:
    """Calls a function when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[], str], tuple[()]]:
        return os.getcwd, ()


def _archive(**records: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in records.items():
            archive.writestr(name, content)
    return file.getvalue()


def _of_torch(value: Any) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


PASSWORDS = b"root:!:19800:0:99999:7:::\nbin:*:19800:0:99999:7:::\n"
FILES: dict[str, bytes] = {
    "empty": b"",
    "one-byte": b"\x80",
    "blank": b"\n" * 40,
    "passwords": PASSWORDS,
    "prose": b"This file has a few words. It is no checkpoint.\n" * 50,
    "random": random.Random(5).randbytes(3_000),
    "zeros": bytes(2_000),
    "gzip": gzip.compress(PASSWORDS),
    "cut-archive": b"PK\x03\x04 cut",
    "empty-archive": _archive(),
    "other-archive": _archive(notes=b"some text"),
    "archive-of-garbage": _archive(**{"archive/data.pkl": b"(lp0\n", "archive/version": b"3\n"}),
    "pickle": pickle.dumps({"format": 1, "list": [1, 2]}),
    "pickled-class": pickle.dumps(Greeting()),
    "pickled-call": pickle.dumps(Caller(), protocol=2),
    "saved-class": _of_torch({"format": 1, "position": Greeting()}),
    "saved-number": _of_torch(5),
    "only-format": _of_torch({"format": 1}),
    "wrong-types": _of_torch({"format": 1, "position": 3, "fingerprint": "x", "learner": None, "best": "x"}),
    "wrong-position": _of_torch(
        {
            "format": 1,
            "position": {"epoch": "one", "step": []},
            "fingerprint": {3: 4},
            "data": [],
            "learner": {"model": {}},
        }
    ),
}
