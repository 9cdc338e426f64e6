#!/usr/bin/env python3
"""Run collectors: a dry run by default, `--push` to deliver. See `--help`."""

import _signal  # type: ignore[import-not-found]  # typeshed lacks it
import os
import sys

# From here on a signal ends this process, also where it is process 1, which loses those that come before.
# Every interpreter has loaded what this needs: `signal` alone would take a third as long as the interpreter.
for stopping in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGALRM):
    _signal.signal(stopping, lambda number, _: os._exit(128 + number))

# pathlib would take longer to import than all that is done here.
ROOT = os.path.realpath(f"{__file__}/../..")  # noqa: PTH
OWN = f"{ROOT}/.venv/bin/python"

if sys.version_info < (3, 11):  # noqa: UP036  # whatever `python3` is here
    if os.access(OWN, os.X_OK):  # noqa: PTH
        os.execv(OWN, [OWN, *sys.argv])  # noqa: S606
    sys.stderr.write(f"run_collector.py: Python 3.11 or later is needed: run {ROOT}/scripts/setup once\n")
    sys.exit(2)

# The folder above comes first and this one not at all, so that the project works from any directory.
sys.path[0] = ROOT

if __name__ == "__main__":
    from common.process.cli import main

    sys.exit(main(sys.argv[1:]))
