"""Entry point of a child: `python common/process/child.py NAME`; the name is there for `ps` to show.

A file, not `python -m`, which imports so much first that signals would be lost.
"""

import sys

from common.start import catch_signals


def main() -> int:
    """Take a job from the parent and do it."""
    catch_signals()
    from common.process.child_work import work

    return work()


if __name__ == "__main__":
    sys.exit(main())
