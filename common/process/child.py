"""Entry point of a child: `python -m common.process.child NAME`; the name is there for `ps` to show.

Signals come first: only then is the rest imported, which takes a while.
"""

from __future__ import annotations

import sys

from common import signals


def main() -> int:
    """Take a job from the parent and do it."""
    signals.begin()
    from common.process.child_work import work

    return work()


if __name__ == "__main__":
    sys.exit(main())
