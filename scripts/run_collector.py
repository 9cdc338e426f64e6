#!/usr/bin/env python3
"""Run collectors: a dry run by default, `--push` to deliver. See `--help`."""

import sys
from pathlib import Path

# The folder above comes first and this one not at all, so that the project works from any directory.
sys.path[0] = str(Path(__file__).resolve().parent.parent)

from common.process.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
