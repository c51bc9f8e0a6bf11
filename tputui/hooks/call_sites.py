"""Names the loss of a call such as `loss.backward()`, after the expression in the user's source.

A place of the program is named once. Only the text of the source is read; nothing of the user's is evaluated.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
from itertools import islice
from types import CodeType, FrameType

from tputui.observers.user_frames import is_user_file, user_frames

LOSS = "loss"
NAME_CHARS_MAX = 40
SITES_MAX = 1_024
"""Places that are told apart; a program has a handful."""
_BYTES_PER_INSTRUCTION = 2
_KEEPS_NAME = frozenset({"backward", "mean", "sum", "item", "detach", "float", "squeeze"})
"""Methods whose result is called like the object that they belong to."""
_TAKES_LOSS = re.compile(r"backward|loss|criterion|scaler")
"""In a function that gets the loss; the arguments of others, such as `trainer.fit(model)`, are none."""


class CallSite:
    """A place of the user's code from which a backward pass is started."""

    __slots__ = ("code", "group_size", "name", "num_checked", "offset", "parts", "place", "rows")

    def __init__(self, name: str, place: str, code: CodeType | None = None, offset: int = 0) -> None:
        self.name = name
        self.place = place
        """As of `place_of`."""
        self.code = code
        """Of the function that calls."""
        self.offset = offset
        """Of the call, in the code."""
        self.num_checked = 0
        """Calls whose graph was searched for a division."""
        self.parts: list[float] = []
        """The factors by which the newest loss was divided, as products from the last division on."""
        self.rows = 0
        """Examples or tokens over which a loss is the mean; 0 if unknown."""
        self.group_size = 0
        """Passes of a step, if the loss of each was divided by their number; 0 until a step was so."""


_sites: dict[tuple[int, int], CallSite] = {}
"""By `id` of the code and the offset in it: to hash the code itself would take as long as all the rest."""
UNKNOWN = CallSite(LOSS, "")


def site_of(caller: FrameType) -> CallSite:
    """The place from which the user's code called, directly or through a library; `caller` called the hook, such as
    `Tensor.backward`."""
    frame = caller.f_back
    if frame is not None and (site := _sites.get((id(frame.f_code), frame.f_lasti))) is not None:
        return site
    user = next(user_frames(caller), None)
    key = (id(user.f_code), user.f_lasti) if user is not None else (0, 0)
    site = _sites.get(key)
    if site is None:
        site = _named(user)
        if len(_sites) < SITES_MAX:
            _sites[key] = site
    return site


def place_of(frame: FrameType) -> str:
    """File and line, as `train.py:81`."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _named(frame: FrameType | None) -> CallSite:
    if frame is None:
        return UNKNOWN
    name, place = LOSS, ""
    if is_user_file(frame.f_code.co_filename):
        place = place_of(frame)
        with contextlib.suppress(SyntaxError, ValueError, IndexError, TypeError, RecursionError):
            name = _name_at(frame)
    return CallSite(name, place, frame.f_code, frame.f_lasti)


def _name_at(frame: FrameType) -> str:
    """The name of what is differentiated, in the text of the call that a frame is at."""
    code = frame.f_code
    position = next(islice(code.co_positions(), frame.f_lasti // _BYTES_PER_INSTRUCTION, None))
    first, last, start, end = position
    if first is None or last is None:
        return LOSS
    lines = [line.encode() for line in linecache.getlines(code.co_filename, frame.f_globals)[first - 1 : last]]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    call = ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    if not isinstance(call, ast.Call) or not _TAKES_LOSS.search(ast.unparse(call.func)):
        return LOSS
    return (_name_of(call) or LOSS).strip("_")[:NAME_CHARS_MAX]


def _name_of(node: ast.expr) -> str:
    """`errD` of `errD.mean()`, `loss` of `scaler.scale(loss)` and of `loss / 4`."""
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in _KEEPS_NAME and not (called.attr == LOSS or node.args):
            return _name_of(called.value)
        if node.args:
            first = node.args[0]
            return _name_of(first.value if isinstance(first, ast.Starred) else first)
        return ast.unparse(called)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        return _name_of(node.right if isinstance(node.left, ast.Constant) else node.left)
    return ast.unparse(node)
