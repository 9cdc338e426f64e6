"""Forks a child for every job it is given, after importing all that a child needs once.

One line each: a job comes in, the child's pid goes out, `go` comes in, how the child ended goes out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import crash_faults  # type: ignore[import-not-found,unused-ignore]  # copied beside this file
import tenacity  # noqa: F401
from datadog_api_client.v2.api import metrics_api  # noqa: F401
from datadog_api_client.v2.model import metric_content_encoding  # noqa: F401

import common.datadog.historical
import common.execution.backfill
import common.execution.live  # noqa: F401
from common.process.child_work import work


def run_child(told: dict[str, Any], job: int, answer: int) -> None:
    """Become the child, as if it had just been started."""
    os.setsid()
    os.dup2(job, 0)
    os.dup2(answer, 1)
    os.environ.clear()
    os.environ.update(told["environment"])
    if told["plan"]:
        crash_faults.install(told["plan"])
    sys.exit(work())


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        told = json.loads(line)
        job_out, job_in = os.pipe()
        answer_out, answer_in = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(job_in)
            os.close(answer_out)
            try:
                run_child(told, job_out, answer_in)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr)
                os._exit(70)
        os.close(job_out)
        os.close(answer_in)
        print(pid, flush=True)
        sys.stdin.readline()
        os.write(job_in, json.dumps(told["job"]).encode() + b"\n")
        said = b""
        while chunk := os.read(answer_out, 65536):
            said += chunk
        _, status = os.waitpid(pid, 0)
        for descriptor in (job_in, answer_out):
            os.close(descriptor)
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps({"signal": number, "said": said.decode()}), flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
