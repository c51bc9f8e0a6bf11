"""View settings: saved atomically, readable only by the user, invalid files ignored."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tputui.ui.base.preferences import CHANGES_MAX, MAX_BYTES, Undo, Views, state_path

VALUES = st.booleans() | st.integers(-(2**50), 2**50) | st.floats(allow_nan=False) | st.text() | st.lists(st.text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "view.json"


def kept(path: Path, **values: bool | int | float | str | list[str]) -> Views:
    """Views with these values, written."""
    views = Views.opened(path)
    for name, value in values.items():
        views.set(name, value)
    views.write()
    return views


def test_settings_are_restored(path: Path) -> None:
    kept(path, theme="tputui-light", log_axis=True, smoothing=0.5, views=["a", "b"], count=3)
    views = Views.opened(path)
    assert views.get("theme", "x") == "tputui-light"
    assert views.get("log_axis", False) is True
    assert views.get("smoothing", 0.0) == 0.5
    assert views.get("views", ["none"]) == ["a", "b"]
    assert views.get("count", 0) == 3
    assert views.get("count", 0.5) == 3.0
    assert views.notice == ""


def test_wrong_type_falls_back_to_default(path: Path) -> None:
    kept(path, theme=3, log_axis="yes", smoothing=True, views="a", count=False)
    views = Views.opened(path)
    assert views.get("theme", "x") == "x"
    assert views.get("log_axis", False) is False
    assert views.get("smoothing", 0.25) == 0.25
    assert views.get("views", ["x"]) == ["x"]
    assert views.get("count", 7) == 7


def test_file_is_private_without_leftovers(path: Path) -> None:
    kept(path, theme="x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["view.json"]


def test_concurrent_sessions_merge_their_changes(path: Path) -> None:
    one, other = Views.opened(path), Views.opened(path)
    one.set("theme", "x")
    one.write()
    other.set("log_axis", True)
    other.write()
    assert json.loads(path.read_text()) == {"log_axis": True, "theme": "x"}


def test_nothing_is_written_without_changes(path: Path) -> None:
    kept(path, theme="x")
    views = Views.opened(path)
    path.unlink()
    views.set("theme", "x")
    assert not views.is_changed
    views.write()
    assert not path.exists()


def test_a_reset_forgets_everything(path: Path) -> None:
    kept(path, theme="x", log_axis=True)
    views = Views.opened(path)
    views.reset()
    assert views.get("theme", "none") == "none"
    views.write()
    assert json.loads(path.read_text()) == {}


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff\xfe", b"null", b'{"a": 1}' + b" " * MAX_BYTES, b"[" * 60_000],
    ids=["empty", "cut", "list", "no text", "null", "long", "deep"],
)
def test_bad_content_is_ignored_and_reported_once(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    views = Views.opened(path)
    assert "view settings ignored" in views.notice
    assert str(path) in views.notice
    assert views.get("theme", "x") == "x"
    assert path.read_bytes() == content
    views.set("theme", "y")
    views.write()
    assert json.loads(path.read_text()) == {"theme": "y"}


def test_unknown_values_are_ignored(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text('{"theme": "x", "deep": {"a": 1}, "mixed": [1, "a"], "none": null}')
    views = Views.opened(path)
    assert views.notice == ""
    assert views.get("theme", "") == "x"


def test_unwritable_location_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    views = Views.opened(tmp_path / "file" / "view.json")
    views.notice = ""
    views.set("theme", "x")
    views.write()
    assert "view settings not saved" in views.notice


@given(values=st.dictionaries(st.text(min_size=1), VALUES, max_size=5))
def test_every_value_round_trips(tmp_path_factory: pytest.TempPathFactory, values: dict[str, bool]) -> None:
    path = tmp_path_factory.mktemp("view") / "view.json"
    kept(path, **values)
    views = Views.opened(path)
    for name, value in values.items():
        assert views.get(name, value) == value


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/a"}, "/state/tputui/view.json"),
        ({"XDG_STATE_HOME": "state", "HOME": "/home/a"}, "/home/a/.local/state/tputui/view.json"),
        ({"HOME": "/home/a"}, "/home/a/.local/state/tputui/view.json"),
    ],
)
def test_location_of_the_file(environ: dict[str, str], path: str) -> None:
    assert state_path(environ) == Path(path)


def test_nothing_is_saved_without_home() -> None:
    assert state_path({}) is None


def test_changes_are_undone_newest_first() -> None:
    undo, done = Undo(), list[int]()
    for number in range(CHANGES_MAX + 5):
        undo.push(f"change {number}", lambda number=number: done.append(number))  # type: ignore[misc]
    assert len(undo) == CHANGES_MAX
    assert undo.undo() == f"change {CHANGES_MAX + 4}"
    while undo.undo():
        pass
    assert done == list(range(CHANGES_MAX + 4, 4, -1))
