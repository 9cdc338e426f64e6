"""SIGTERM ends a run within two seconds plus the request in flight.

Measured on the whole command line, parent and child, in the states where it could take longest. The run
is under way when the signal comes.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]

from benchmarks.measure import Claim, judge, smallest  # noqa: E402
from support.project import KEY, Project  # noqa: E402
from support.servers.datadog import Intake  # noqa: E402
from support.servers.faults import Fault  # noqa: E402

ANSWER_LATE = 1.0


def stopped(body: str, fault: Fault | None, ready: Callable[[Intake, Path], None]) -> float:
    """Seconds from the signal to the exit of a run that was brought to a state."""
    with tempfile.TemporaryDirectory() as folder, Intake(key=KEY) as intake:
        os.mkfifo(Path(folder, "fifo"))
        (Path(folder) / "service").mkdir()
        environment = {"DD_ENV": "test", "DD_API_KEY": KEY, "FLEETGAUGE_DD_URL": intake.url}
        project = Project(Path(folder, "service"), environment)
        project.add("toy", body.format(fifo=str(Path(folder, "fifo"))))
        if fault:
            intake.faults.add(fault, times=1)
        waiting = threading.Thread(target=ready, args=(intake, Path(folder, "fifo")))
        waiting.start()
        run = project.start("toy", "--push")
        waiting.join()
        begun = time.monotonic()
        run.send_signal(signal.SIGTERM)
        run.communicate()
        return time.monotonic() - begun


def at_the_fifo(_: Intake, fifo: Path) -> None:
    """The collector is in the middle of collecting."""
    fifo.read_text()


def at(point: str) -> Callable[[Intake, Path], None]:
    """A request has come to this point at the intake."""

    def ready(intake: Intake, _: Path) -> None:
        reached = threading.Event()
        intake.on(point, lambda _: reached.set())  # type: ignore[arg-type]  # one of the intake's points
        reached.wait(60)

    return ready


def main(argv: Sequence[str]) -> int:
    """Three states; the answer that is under way comes a second late."""
    smallest(argv, __doc__)  # it has but one size
    one = "yield VALUE(1, context.at)"
    collecting = stopped("open({fifo!r}, 'w').write('x')\ntime.sleep(600)\n" + one, None, at_the_fifo)
    retrying = stopped(one, Fault(status=503, headers={"Retry-After": "60"}), at("answered"))
    delivering = stopped(one, Fault(delay=ANSWER_LATE), at("read"))
    return judge(
        [
            Claim("s while collecting", collecting, 2),
            Claim("s while waiting to try again", retrying, 2),
            Claim(f"s while an answer is {ANSWER_LATE:g} s late", delivering, 2 + ANSWER_LATE),
        ]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
