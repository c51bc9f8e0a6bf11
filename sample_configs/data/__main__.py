"""The sets of all scripts: `python sample_configs/data NAME` fetches one; started by `tputui data`."""

from __future__ import annotations

import sys

import ct
import dermoscopy
import digits
import reviews
import rgbd
from packages import main

SETS = (*reviews.SETS, *dermoscopy.SETS, *ct.SETS, *rgbd.SETS, *digits.SETS)

if __name__ == "__main__":
    sys.exit(main(SETS))
