#!/usr/bin/env python3
"""Run collectors: a dry run by default, `--push` to deliver. See `--help`."""

import os
import sys

# The folder above comes first and this one not at all, so that the project works from any directory.
sys.path[0] = os.path.realpath(f"{__file__}/../..")  # noqa: PTH  # pathlib takes longer to import

from common import signals  # noqa: E402

if __name__ == "__main__":
    signals.begin()  # before the rest is imported, which takes a while
    from common.process.cli import main

    sys.exit(main(sys.argv[1:]))
