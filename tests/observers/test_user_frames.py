"""The innermost line of the user's code on a stack."""

from __future__ import annotations

import _thread
import sys
import sysconfig
import threading
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

from tests.deadline import DEADLINE_S
from tputui.observers.source_code import source_code
from tputui.observers.user_frames import (
    AUTOGRAD_THREAD,
    NO_USER_FRAME,
    UserLine,
    local_variables,
    user_frames,
    user_line,
)
from tputui.telemetry.events import CodeFrame

LIBRARY = """
import sys
def outer(function):
    return inner(function)
def inner(function):
    return function(sys._getframe())
"""


def library(file: str) -> Any:
    """A function in a file that calls another one with its own frame."""
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, file, "exec"), names)
    return names["outer"]


def test_frames_of_libraries_are_removed() -> None:
    root = Path(__file__).parents[2]
    files = (
        f"{sysconfig.get_path('purelib')}/torch_xla/torch_xla.py",
        f"{sysconfig.get_path('stdlib')}/threading.py",
        str(root / "engine" / "xla" / "backend.py"),
        str(root / "tputui" / "observers" / "sinks.py"),
    )
    for file in files:
        outer = library(file)

        def step(outer: Any = outer) -> UserLine:
            line: UserLine = outer(user_line)
            return line

        number, code = step.__code__.co_firstlineno + 1, "line: UserLine = outer(user_line)"
        expected = CodeFrame(file=__file__, line=number, function="step", owner="user", code=code)
        assert step() == (expected, None)


def test_callers_follow_innermost_first() -> None:
    names = library("/home/me/helpers.py")(lambda frame: [found.f_code.co_name for found in user_frames(frame)])
    assert names[:3] == ["inner", "outer", "test_callers_follow_innermost_first"]


def test_line_unknown_has_a_reason() -> None:
    found: list[UserLine] = []
    done = threading.Event()

    def on_native_thread() -> None:
        found.append(user_line(None))
        done.set()

    _thread.start_new_thread(on_native_thread, ())
    assert done.wait(DEADLINE_S)
    assert found == [(None, AUTOGRAD_THREAD)]
    assert user_line(None) == (None, NO_USER_FRAME)


class Held:
    """Something that a variable holds."""


def test_a_look_at_the_variables_of_a_call_keeps_no_value_of_them() -> None:
    def train() -> tuple[object, object]:
        held = Held()
        before = weakref.ref(held)
        assert local_variables(sys._getframe())["held"] is held
        held = Held()
        return before(), held

    assert train()[0] is None


def test_a_look_at_the_variables_leaves_those_that_the_program_holds() -> None:
    def train(lr: float) -> dict[str, object]:
        options = locals()
        assert local_variables(sys._getframe())["lr"] == lr
        return options

    assert train(0.5)["lr"] == 0.5


def test_a_look_at_the_variables_from_a_trace_function_leaves_them() -> None:
    looked = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        looked.append("lr" in local_variables(frame))
        return trace

    def train(lr: float) -> float:
        return 2 * lr

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        doubled = train(0.5)
    finally:
        sys.settrace(before)
    assert (doubled, all(looked)) == (1.0, True)


def test_the_text_of_a_line_has_the_comments_of_its_statement(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "for step in range(3):  # tputui: ignore tracing\n"
        "    total += (\n"
        "        loss.item()\n"
        "    )  # tputui: ignore sync, recompile\n"
        "    print(loss)  # tputui: ignore\n"
        "    plain(loss)\n"
    )
    codes = [source_code(str(file), line) for line in range(8)]
    assert codes == [
        "",
        "for step in range(3):  # tputui: ignore tracing",
        "total += (  # tputui: ignore sync, recompile",
        "loss.item()  # tputui: ignore sync, recompile",
        ")  # tputui: ignore sync, recompile",
        "print(loss)  # tputui: ignore",
        "plain(loss)",
        "",
    ]
    assert source_code(str(tmp_path / "gone.py"), 1) == ""
