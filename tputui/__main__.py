"""`python -m tputui` is `tputui`."""

import sys

from tputui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
