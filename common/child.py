"""The child process: takes a job from its parent, runs it and reports one outcome.

The job comes as one line on standard input, which then stays open: its end means that the parent is gone,
and the child ends too. The outcome leaves on what was standard output; anything printed goes to stderr.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading

from common import logs, signals
from common.protocol import Job
from common.run import execute

log = logging.getLogger(__name__)


def _read_job() -> Job:
    """The first line of standard input, read without a buffer: the rest of it is the parent's lifeline."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 65536)
        if not chunk:
            raise EOFError("the parent sent no job")
        line += chunk
    return Job.from_json(line.decode())


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Entry point of `python -m common.child NAME`; the name is there for `ps` to show."""
    # A short life that makes values in bulk and hardly a cycle: looking for cycles often is wasted.
    gc.set_threshold(100_000)
    answer = os.dup(1)
    os.dup2(2, 1)
    job = _read_job()
    logs.set_up(job.collector, verbose=job.verbose)
    signals.install()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    outcome = execute(job, os.environ)
    signals.ignore()
    try:
        os.write(answer, outcome.to_json().encode() + b"\n")
    except BrokenPipeError:
        log.warning("the parent is gone; the outcome was %s", outcome.status)
    return 0


if __name__ == "__main__":
    sys.exit(main())
