"""The first thing a process does: from here on a signal ends it, quietly, also where it is process 1.

Needs only modules that every interpreter has loaded by then: `signal` alone would take a third as long as the
interpreter itself, and process 1 loses the signals that come before its handler stands.
"""

import _signal  # type: ignore[import-not-found]  # a builtin, and not in typeshed
import os

STOPPING: tuple[int, ...] = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGALRM)


def catch_signals() -> None:
    """Have the first signal end the process.

    What may be inherited is undone: blocked signals, and a SIGCHLD that hides how children ended.
    """
    for number in STOPPING:
        _signal.signal(number, _leave)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (*STOPPING, _signal.SIGCHLD))


def _leave(number: int, _frame: object) -> None:
    os._exit(128 + number)
