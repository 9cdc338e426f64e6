"""Entry point of a child: `python common/process/child.py NAME`; the name is there for `ps` to show.

A file, not `python -m`, which imports a lot first: signals end this process before anything is imported that
the interpreter did not load by itself, as in `scripts/run_collector.py`.
"""

import _signal  # type: ignore[import-not-found]  # typeshed lacks it
import os
import sys

for stopping in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGALRM):
    _signal.signal(stopping, lambda number, _: os._exit(128 + number))

if __name__ == "__main__":
    from common.process.child_work import work

    sys.exit(work())
