"""The declared data sets, and fetching fake packages with the real tools."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec import structs

import digits
import reviews
from fetch import Prepare, fetch
from packages import CannotFetch, unpack
from tests.deadline import DEADLINE_S
from tests.engine.archives import CONTENT, NAME, Manager, Registry, made_up, package, prepare, prepare_badly, tar_of
from tputui import data_sets, user_cache
from tputui.data_sets import DataSet
from tputui.exit_codes import ExitCode

NUMBERS = {"made_up/numbers.csv": CONTENT}


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """The only source of packages."""
    with Registry.alone(tmp_path / "registry") as made:
        yield made


def fetched(entry: DataSet, place: Path, prepare: Prepare = prepare) -> bool:
    """Fetches a made-up set; returns whether it was not there yet."""
    return fetch(entry, prepare, place)


def refused(entry: DataSet, place: Path) -> CannotFetch:
    """The error of a failed fetch; checks that no partial files remain."""
    with pytest.raises(CannotFetch) as caught:
        fetched(entry, place)
    assert list(place.parent.iterdir()) == [] if place.parent.exists() else True
    assert "\n" not in str(caught.value)
    return caught.value


SETS = data_sets.catalogue()


@pytest.mark.parametrize("data_set", SETS.values(), ids=lambda data_set: data_set.name)
def test_every_set_is_pinned_and_states_its_licence(data_set: DataSet) -> None:
    assert data_set.licence
    assert data_set.num_examples > 0
    assert data_set.table.endswith((".csv", ".npy"))
    for pinned in data_set.packages:
        assert re.fullmatch(r"[a-z-]+(==|@|=|>=)[0-9].*", pinned.spec)
        if pinned.manager != "installed":
            assert re.fullmatch("[0-9a-f]{64}", pinned.sha256)
            assert pinned.size_bytes > 0


@pytest.mark.parametrize("name", ["imdb", "dermoscopy", "dermoscopy-rare"])
def test_research_only_sets_state_it(name: str) -> None:
    assert "Do not redistribute" in SETS[name].restrictions


def test_wheel_becomes_a_set_with_source_file(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)))
    place = tmp_path / "cache/numbers"

    assert fetched(entry, place)

    assert sorted(path.name for path in place.iterdir()) == ["SOURCE.txt", "numbers.csv"]
    assert (place / "numbers.csv").read_bytes() == CONTENT
    source = (place / "SOURCE.txt").read_text()
    for words in ("made-up-numbers==1.0", entry.packages[0].sha256, "CC0-1.0", "For counting only.", "3 rows"):
        assert words in source
    assert list(place.parent.iterdir()) == [place]


def test_licence_is_printed_before_download(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotFetch):
        fetched(made_up(package("pip")), tmp_path / "cache/numbers")

    messages = capsys.readouterr().err.splitlines()
    assert messages[:3] == ["numbers: numbers to count", "licence: CC0-1.0", "note: For counting only."]
    assert messages[3].startswith("downloading ")


def test_source_package_is_fetched_without_running_setup(registry: Registry, tmp_path: Path) -> None:
    ran = tmp_path / "setup-ran"
    setup = f"open({str(ran)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={NAME!r}, version='1.0')\n"
    archive = registry.source({"setup.py": setup.encode(), "data/numbers.csv": CONTENT})
    place = tmp_path / "cache/numbers"

    assert fetched(made_up(package("pip", archive)), place)

    assert (place / "numbers.csv").read_bytes() == CONTENT
    assert not ran.exists()


def test_second_fetch_changes_nothing(registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = registry.wheel(NUMBERS)
    entry = made_up(package("pip", archive))
    place = tmp_path / "cache/numbers"
    fetched(entry, place)
    archive.unlink()
    made_at = place.stat().st_mtime_ns
    capsys.readouterr()

    assert not fetched(entry, place)

    assert capsys.readouterr().err == f"numbers is already in {place}; remove that folder to fetch it again\n"
    assert place.stat().st_mtime_ns == made_at


def test_copy_prepared_by_other_version_is_replaced(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)))
    place = tmp_path / "cache/numbers"
    fetched(entry, place)
    (place / "left-over.csv").touch()

    assert fetched(structs.replace(entry, recipe=2), place)

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
        ({"/numbers.csv": CONTENT}, {}),
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
def test_zip_with_outside_paths_is_unpacked_inside(tmp_path: Path, name: str) -> None:
    archive = tmp_path / "made.whl"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(name, CONTENT)

    unpack(archive, ("*",), tmp_path / "into")

    (written,) = tmp_path.rglob("numbers.csv")
    assert written.is_relative_to(tmp_path / "into")


def test_link_in_a_zip_is_not_followed(tmp_path: Path) -> None:
    archive = tmp_path / "made.whl"
    link = zipfile.ZipInfo("numbers.csv")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(link, "/etc/hostname")

    unpack(archive, ("*",), tmp_path / "into")

    assert (tmp_path / "into/numbers.csv").read_text() == "/etc/hostname"


def test_only_needed_members_are_written(tmp_path: Path) -> None:
    archive = tar_of({"a/numbers.csv": CONTENT, "a/other.csv": CONTENT}, tmp_path / "made.tgz")

    unpack(archive, ("*/numbers.csv",), tmp_path / "into")

    assert [path.name for path in (tmp_path / "into").rglob("*.csv")] == ["numbers.csv"]


@pytest.mark.parametrize(("manager", "tool"), [("npm", "npm"), ("apt", "apt-get")])
def test_a_missing_tool_is_named(manager: Manager, tool: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))

        failure = refused(made_up(package(manager)), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.ENVIRONMENT
    assert f"{tool} is not installed" in str(failure)


def test_unreachable_index_is_one_sentence(registry: Registry, tmp_path: Path) -> None:
    failure = refused(made_up(package("pip")), tmp_path / "cache/numbers")

    assert failure.code == ExitCode.ENVIRONMENT
    assert str(failure) == "made-up-numbers==1.0: it was not found; is the package index reachable?"


def test_missing_optional_package_is_recorded(
    registry: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.npm("echo 'npm error network unreachable' >&2; exit 1")
    packages = package("pip", registry.wheel(NUMBERS)), structs.replace(package("npm", optional=True), spec="extra@1.0")
    place = tmp_path / "cache/numbers"

    assert fetched(made_up(*packages), place)

    messages = capsys.readouterr().err.splitlines()
    assert any(line.startswith("left out extra: ") and "network unreachable" in line for line in messages)
    assert "left out extra: " in (place / "SOURCE.txt").read_text()


@pytest.mark.parametrize(("script", "module"), [("ct.py", "nibabel"), ("rgbd.py", "skimage"), ("digits.py", "sklearn")])
def test_missing_module_is_reported_before_download(script: str, module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('No module', name={module!r})")
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "TPUTUI_DATA": str(tmp_path / "cache")}

    argv = [sys.executable, str(data_sets.scripts() / script)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (ExitCode.ENVIRONMENT, "")
    sentence = f"preparing this data set needs {module}, which is not installed; run `pip install 'tputui[data]'`\n"
    assert done.stderr == sentence
    assert not (tmp_path / "cache").exists()


def test_a_set_that_a_script_does_not_prepare_is_a_usage_error(tmp_path: Path) -> None:
    argv = [sys.executable, reviews.__file__, "ct", "--to", str(tmp_path / "ct")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "invalid choice: 'ct' (choose from 'imdb', 'imdb-sentences')" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data_set", SETS.values(), ids=lambda data_set: data_set.name)
def test_every_set_is_prepared_by_a_script_that_knows_it(data_set: DataSet) -> None:
    argv = [sys.executable, str(data_sets.scripts() / data_set.prepared_by), "--help"]

    assert data_set.name in subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_a_full_disk_leaves_nothing_behind(registry: Registry, tmp_path: Path) -> None:
    entry = made_up(package("pip", registry.wheel(NUMBERS)))
    place = tmp_path / "cache/numbers"

    with pytest.raises(OSError, match="No space left"):
        fetched(entry, place, prepare_badly)

    assert list(place.parent.iterdir()) == []


def test_a_folder_with_other_files_is_not_touched(registry: Registry, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    (place / "thesis.txt").touch()

    with pytest.raises(CannotFetch, match="contains other files") as caught:
        fetched(made_up(package("pip", registry.wheel(NUMBERS))), place)

    assert caught.value.code == ExitCode.USAGE
    assert [path.name for path in place.iterdir()] == ["thesis.txt"]


def test_leftovers_of_a_killed_fetch_are_removed(registry: Registry, tmp_path: Path) -> None:
    place = tmp_path / "cache/numbers"
    stale = place.parent / ".numbers.part/made"
    stale.mkdir(parents=True)

    fetched(made_up(package("pip", registry.wheel(NUMBERS))), place)

    assert list(place.parent.iterdir()) == [place]


def test_concurrent_fetches_download_once(registry: Registry, tmp_path: Path) -> None:
    archive = tar_of({"package/numbers.csv": CONTENT}, registry.folder / "whole.tgz")
    registry.npm(f"cp {archive} made-up-numbers-1.0.tgz; echo >> {tmp_path / 'calls'}")
    entry = made_up(package("npm", archive))
    place = tmp_path / "cache/numbers"

    with ThreadPoolExecutor(2) as pool:
        new = list(pool.map(lambda _: fetched(entry, place), range(2)))

    assert sorted(new) == [False, True]
    assert (tmp_path / "calls").read_text() == "\n"
    assert list(place.parent.iterdir()) == [place]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_fetch_leaves_nothing_behind(registry: Registry, tmp_path: Path, number: signal.Signals) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    os.mkfifo(tmp_path / "never")
    registry.npm(f"echo half > half.tgz; echo > {begun}; read line < {tmp_path / 'never'}")
    argv = [sys.executable, reviews.__file__, "imdb-sentences"]
    env = {**os.environ, "TPUTUI_DATA": str(tmp_path / "cache")}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        begun.read_text()
        process.send_signal(number)
        process.communicate(timeout=DEADLINE_S)

    assert process.returncode != 0
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(OSError, match="No such device"):  # no tool waits for a line
        os.open(tmp_path / "never", os.O_WRONLY | os.O_NONBLOCK)


def test_cache_location_follows_environment(tmp_path: Path) -> None:
    found = user_cache.data_folder({"TPUTUI_DATA": str(tmp_path), "XDG_CACHE_HOME": "/x"})
    assert found == tmp_path
    assert user_cache.data_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/tputui/data")
    assert user_cache.data_folder({}) == Path.home() / ".cache/tputui/data"


@pytest.mark.parametrize(
    ("words", "variable", "code", "subject"),
    [
        (["--to", "~nobody-here/x"], "", ExitCode.USAGE, "--to"),
        ([], "~nobody-here/data", ExitCode.ENVIRONMENT, "TPUTUI_DATA"),
    ],
)
def test_a_folder_in_an_unknown_home_is_one_sentence(
    words: list[str], variable: str, code: ExitCode, subject: str
) -> None:
    env = {**os.environ, "TPUTUI_DATA": variable}
    done = subprocess.run(
        [sys.executable, reviews.__file__, *words], env=env, capture_output=True, text=True, check=False
    )

    sentence = f"{subject}: there is no home directory ~nobody-here; write the whole path"
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"{sentence}\n")


def test_listing_imports_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\nfrom tputui.cli.main import main\nmain(['data', 'list', '--json'])\n"
        "print(*{'torch', 'numpy', 'PIL', 'polars', 'skimage', 'unearth'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    listed, _, imported = done.stdout.rstrip("\n").rpartition("]")
    assert imported.strip() == ""
    assert [each["name"] for each in json.loads(listed + "]")] == list(SETS)


def test_a_script_alone_fetches_its_set(tmp_path: Path) -> None:
    argv = [sys.executable, digits.__file__, "--to", str(tmp_path / "mine")]

    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)

    assert done.stdout == f"{tmp_path / 'mine'}\n"
    assert len((tmp_path / "mine/digits.csv").read_text().splitlines()) == 1 + SETS["digits"].num_examples


class TestSettingsOfPip:
    """The indexes that the user set for pip are the ones that are asked."""

    def test_indexes_of_the_configuration_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = Registry(tmp_path / "registry")
        archive = registry.wheel(NUMBERS)
        registry.index({NAME: archive})
        (tmp_path / "empty").mkdir()
        settings = tmp_path / "pip.conf"
        settings.write_text(
            f"[global]\nindex-url = {(tmp_path / 'empty').as_uri()}\n"
            f"find-links = /nonexistent\nextra-index-url = {(tmp_path / 'none').as_uri()}\n"
            f"    {registry.folder.as_uri()}/simple\n"
        )
        for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))

        assert fetched(made_up(package("pip", archive)), tmp_path / "cache/numbers")

    def test_the_environment_comes_before_the_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        registry = Registry(tmp_path / "registry")
        registry.serve(monkeypatch)
        (tmp_path / "pip.conf").write_text("[global]\nno-index = false\nfind-links = /nonexistent\n")
        monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))

        assert fetched(made_up(package("pip", registry.wheel(NUMBERS))), tmp_path / "cache/numbers")

    def test_missing_certificates_are_named(self, registry: Registry, tmp_path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PIP_CERT", "/nonexistent.pem")
            failure = refused(made_up(package("pip", registry.wheel(NUMBERS))), tmp_path / "cache/numbers")

        assert failure.code == ExitCode.ENVIRONMENT
        assert "the certificates of pip are missing: /nonexistent.pem" in str(failure)

    def test_the_pinned_file_of_several_is_taken(self, registry: Registry, tmp_path: Path) -> None:
        registry.wheel({"made_up/numbers.csv": b"other"})
        archive = registry.source({"data/numbers.csv": CONTENT})

        assert fetched(made_up(package("pip", archive)), tmp_path / "cache/numbers")
        assert (tmp_path / "cache/numbers/numbers.csv").read_bytes() == CONTENT
