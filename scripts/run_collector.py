#!/usr/bin/env python3
"""Run collectors: a dry run by default, `--push` to deliver. See `--help`."""

import os
import sys

# pathlib would take longer to import than all that is done here.
ROOT = os.path.realpath(f"{__file__}/../..")
OWN = f"{ROOT}/.venv/bin/python"

# The project's own Python where there is one, whichever `python3` was called. It may be a script that starts
# another, which must not come back here: -X says so.
is_own = sys.executable == OWN or sys.prefix == f"{ROOT}/.venv" or "own" in sys._xoptions
if not is_own and os.access(OWN, os.X_OK):
    os.execv(OWN, [OWN, "-X", "own", *sys.argv])  # noqa: S606
if sys.version_info < (3, 11):  # noqa: UP036  # whatever `python3` is here
    sys.stderr.write(f"run_collector.py: Python 3.11 or later is needed: run {ROOT}/scripts/setup once\n")
    sys.exit(2)

# The folder above comes first and this one not at all, so that the project works from any directory.
sys.path[0] = ROOT

from common import signals  # noqa: E402

signals.install()  # before anything that takes long is imported

if __name__ == "__main__":
    from common.cli.main import main

    # Not sys.exit: output that could not be written would be flushed again, and change the exit code.
    os._exit(main(sys.argv[1:]))
