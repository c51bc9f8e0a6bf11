"""The catalog of data sets, and fetching fake packages with the real tools."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.datasets import cache, catalog
from engine.datasets.cache import CannotFetch
from engine.datasets.catalog import CATALOGUE, DatasetEntry
from engine.datasets.fetch import fetch, unpack
from tests.engine.archives import CONTENT, NAME, Registry, made_up, package, tar_of
from tputui.exit_codes import ExitCode

NUMBERS = {"made_up/numbers.csv": CONTENT}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """The only source of packages."""
    with Registry.alone(tmp_path / "registry") as made:
        yield made


def refused(entry: DatasetEntry, place: Path) -> CannotFetch:
    """The error of a failed fetch; checks that no partial files remain."""
    with pytest.raises(CannotFetch) as caught:
        fetch(entry, place, lambda line: None)
    assert list(place.parent.iterdir()) == [] if place.parent.exists() else True
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_every_set_is_pinned_and_states_its_licence(entry: DatasetEntry) -> None:
    assert entry.licence
    assert entry.num_examples > 0
    assert entry.table.endswith((".csv", ".npy"))
    for pinned in entry.packages:
        assert len(pinned.sha256) == 64
        assert set(pinned.sha256) <= set("0123456789abcdef")
        assert pinned.version
        assert (pinned.size_bytes > 0) == (pinned.manager != "installed")


def test_unknown_set_gets_the_closest_name() -> None:
    names = [entry.name for entry in CATALOGUE]

    assert len(set(names)) == len(names)
    assert all(catalog.find(name).name == name for name in names)
    with pytest.raises(KeyError, match='no data set "dermoscpy"; did you mean dermoscopy'):
        catalog.find("dermoscpy")


@pytest.mark.parametrize("name", ["imdb", "dermoscopy", "dermoscopy-rare"])
def test_research_only_sets_state_it(name: str) -> None:
    assert "Do not redistribute" in catalog.find(name).restrictions


def test_wheel_becomes_a_set_with_source_file(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)))
    place = tmp_path / "cache/numbers"
    messages: list[str] = []

    assert fetch(entry, place, messages.append)

    assert sorted(path.name for path in place.iterdir()) == ["SOURCE.txt", "numbers.csv"]
    assert (place / "numbers.csv").read_bytes() == CONTENT
    source = (place / "SOURCE.txt").read_text()
    for words in ("made-up-numbers==1.0", entry.packages[0].sha256, "CC0-1.0", "For counting only.", "3 rows"):
        assert words in source
    assert list(place.parent.iterdir()) == [place]


def test_licence_is_printed_before_download(registry: Registry, tmp_path: Path) -> None:
    messages: list[str] = []

    with pytest.raises(CannotFetch):
        fetch(made_up(package("pip")), tmp_path / "cache/numbers", messages.append)

    assert messages[:3] == ["numbers: numbers to count", "licence: CC0-1.0", "note: For counting only."]
    assert messages[3].startswith("downloading ")


def test_source_package_is_fetched_without_running_setup(registry: Registry, tmp_path: Path) -> None:
    ran = tmp_path / "setup-ran"
    setup = f"open({str(ran)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={NAME!r}, version='1.0')\n"
    archive = registry.source({"setup.py": setup.encode(), "data/numbers.csv": CONTENT})
    place = tmp_path / "cache/numbers"

    assert fetch(made_up(package("pip-source", archive)), place, lambda line: None)

    assert (place / "numbers.csv").read_bytes() == CONTENT
    assert not ran.exists()


def test_second_fetch_changes_nothing(registry: Registry, tmp_path: Path) -> None:
    archive = registry.wheel(NUMBERS)
    entry = made_up(package("pip", archive))
    place = tmp_path / "cache/numbers"
    fetch(entry, place, lambda line: None)
    archive.unlink()
    made_at = place.stat().st_mtime_ns
    messages: list[str] = []

    assert not fetch(entry, place, messages.append)

    assert messages == [f"numbers is already in {place}; remove that folder to fetch it again"]
    assert place.stat().st_mtime_ns == made_at


def test_copy_prepared_by_other_version_is_replaced(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)))
    place = tmp_path / "cache/numbers"
    fetch(entry, place, lambda line: None)
    (place / "left-over.csv").touch()

    assert fetch(entry._replace(recipe=2), place, lambda line: None)

    assert sorted(path.name for path in place.iterdir()) == ["SOURCE.txt", "numbers.csv"]
    assert list(place.parent.iterdir()) == [place]


def test_changed_package_is_rejected(registry: Registry, tmp_path: Path) -> None:
    registry.wheel(NUMBERS)

    failure = refused(made_up(package("pip")), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.DAMAGED
    assert "made-up-numbers==1.0" in str(failure)
    assert f"expected {'0' * 64}" in str(failure)


def test_truncated_download_is_rejected(registry: Registry, tmp_path: Path) -> None:
    archive = tar_of({"package/numbers.csv": CONTENT * 1_000}, registry.folder / "whole.tgz")
    entry = made_up(package("npm", archive))
    registry.npm(f"head -c 60 {archive} > made-up-numbers-1.0.tgz")

    failure = refused(entry, tmp_path / "cache/numbers")

    assert failure.code == ExitCode.DAMAGED
    assert "the download is incomplete or the package was changed" in str(failure)


def test_truncated_archive_is_rejected(tmp_path: Path) -> None:
    whole = tar_of({"package/numbers.csv": os.urandom(50_000)}, tmp_path / "whole.tgz")
    cut = tmp_path / "cut.tgz"
    cut.write_bytes(whole.read_bytes()[:20_000])

    with pytest.raises(CannotFetch, match=r"cut\.tgz cannot be unpacked") as caught:
        unpack(cut, ("*",), tmp_path / "into")

    assert caught.value.code == ExitCode.DAMAGED


@pytest.mark.parametrize(
    ("members", "links"),
    [
        ({"../numbers.csv": CONTENT}, {}),
        ({"package/../../numbers.csv": CONTENT}, {}),
        ({}, {"numbers.csv": "/etc/hostname"}),
        ({}, {"numbers.csv": "../outside"}),
        ({}, {"numbers.csv": "inside"}),
    ],
)
def test_tar_with_outside_paths_is_rejected(
    registry: Registry, tmp_path: Path, members: dict[str, bytes], links: dict[str, str]
) -> None:
    archive = tar_of(members, registry.folder / "whole.tgz", links)
    registry.npm(f"cp {archive} made-up-numbers-1.0.tgz")

    failure = refused(made_up(package("npm", archive)), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.DAMAGED
    assert "cannot be unpacked" in str(failure)
    assert list(tmp_path.rglob("numbers.csv")) == []


@pytest.mark.parametrize("name", ["../numbers.csv", "made_up/../../numbers.csv", "/numbers.csv"])
def test_zip_with_outside_paths_is_rejected(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "made.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, CONTENT)

    with pytest.raises(CannotFetch, match="not a regular file inside the folder"):
        unpack(archive, ("*",), tmp_path / "into")

    assert list(tmp_path.rglob("numbers.csv")) == []


def test_zip_with_link_is_rejected(tmp_path: Path) -> None:
    archive = tmp_path / "made.zip"
    link = zipfile.ZipInfo("numbers.csv")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(link, "/etc/hostname")

    with pytest.raises(CannotFetch, match="not a regular file inside the folder"):
        unpack(archive, ("*",), tmp_path / "into")


def test_only_needed_members_are_written(tmp_path: Path) -> None:
    archive = tar_of({"a/numbers.csv": CONTENT, "a/other.csv": CONTENT}, tmp_path / "made.tgz")

    unpack(archive, ("*/numbers.csv",), tmp_path / "into")

    assert [path.name for path in (tmp_path / "into").rglob("*.csv")] == ["numbers.csv"]


@pytest.mark.parametrize(("manager", "tool"), [("npm", "npm"), ("apt", "apt-get")])
def test_a_missing_tool_is_named(manager: catalog.Manager, tool: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))

        failure = refused(made_up(package(manager)), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.ENVIRONMENT
    assert f"{tool} is not installed" in str(failure)


def test_unreachable_index_reports_message_of_the_tool(registry: Registry, tmp_path: Path) -> None:
    failure = refused(made_up(package("pip")), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.ENVIRONMENT
    assert "No matching distribution found for made-up-numbers==1.0" in str(failure)


def test_missing_optional_package_is_recorded(registry: Registry, tmp_path: Path) -> None:
    registry.npm("echo 'npm error network unreachable' >&2; exit 1")
    packages = package("pip", registry.wheel(NUMBERS)), package("npm", optional=True)._replace(name="extra")
    place = tmp_path / "cache/numbers"
    messages: list[str] = []

    assert fetch(made_up(*packages), place, messages.append)

    assert any(line.startswith("left out extra: ") and "network unreachable" in line for line in messages)
    assert "left out extra: " in (place / "SOURCE.txt").read_text()


def test_missing_module_is_reported_before_download(tmp_path: Path) -> None:
    entry = made_up(package("pip"))._replace(needs=(("no_such_reader", "no-such-reader"),))
    messages: list[str] = []

    with pytest.raises(CannotFetch, match="run `pip install no-such-reader`") as caught:
        fetch(entry, tmp_path / "cache/numbers", messages.append)

    assert caught.value.code == ExitCode.ENVIRONMENT
    assert messages == []


def test_a_full_disk_leaves_nothing_behind(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)), prepare="prepare_badly")
    place = tmp_path / "cache/numbers"

    with pytest.raises(OSError, match="No space left"):
        fetch(entry, place, lambda line: None)

    assert list(place.parent.iterdir()) == []


def test_a_folder_with_other_files_is_not_touched(registry: Registry, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").touch()

    with pytest.raises(CannotFetch, match="contains other files") as caught:
        fetch(made_up(package("pip", registry.wheel(NUMBERS))), place, lambda line: None)

    assert caught.value.code == ExitCode.USAGE
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


def test_leftovers_of_a_killed_fetch_are_removed(registry: Registry, tmp_path: Path) -> None:
    place = tmp_path / "cache/numbers"
    stale = place.parent / ".numbers.part-abcd/made"
    stale.mkdir(parents=True)

    fetch(made_up(package("pip", registry.wheel(NUMBERS))), place, lambda line: None)

    assert list(place.parent.iterdir()) == [place]


def test_concurrent_fetches_download_once(registry: Registry, tmp_path: Path) -> None:
    archive = tar_of({"package/numbers.csv": CONTENT}, registry.folder / "whole.tgz")
    registry.npm(f"cp {archive} made-up-numbers-1.0.tgz; echo >> {tmp_path / 'calls'}")
    entry = made_up(package("npm", archive))
    place = tmp_path / "cache/numbers"

    with ThreadPoolExecutor(2) as pool:
        fetched = list(pool.map(lambda _: fetch(entry, place, lambda line: None), range(2)))

    assert sorted(fetched) == [False, True]
    assert (tmp_path / "calls").read_text() == "\n"
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_fetch_leaves_nothing_behind(registry: Registry, tmp_path: Path, number: signal.Signals) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    os.mkfifo(tmp_path / "never")
    registry.npm(f"echo half > half.tgz; echo > {begun}; read line < {tmp_path / 'never'}")
    argv = [sys.executable, "-P", "-m", "engine.datasets", "fetch", "imdb-sentences"]
    env = {**os.environ, "TPUTUI_DATA": str(tmp_path / "cache")}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        begun.read_text()
        process.send_signal(number)
        process.communicate(timeout=240)

    assert process.returncode != 0
    assert list((tmp_path / "cache").iterdir()) == []


def test_cache_location_follows_environment(tmp_path: Path) -> None:
    assert cache.root({"TPUTUI_DATA": str(tmp_path), "XDG_CACHE_HOME": "/x"}) == tmp_path
    assert cache.root({"XDG_CACHE_HOME": "/x"}) == Path("/x/tputui/data")
    assert cache.root({}) == Path.home() / ".cache/tputui/data"


def test_listing_imports_neither_torch_nor_numpy() -> None:
    code = "import sys, engine.datasets.__main__; print(*{'torch', 'numpy', 'PIL', 'polars'} & set(sys.modules))"

    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "\n"
