"""The crash harness over a collector of records, and what its cases share: places, torn lines, kills."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import strategies as st

from support.crash_harness import AT_THE_INTAKE, AT_THE_STORE, CrashHarness, Kill
from support.growing_file import KEY
from support.project import Project
from support.record_objects import BUCKET, Bucket
from support.servers.aws import Aws
from support.servers.datadog import Intake

# The first save tells what is about to be sent; the next ones, document by document, what was.
KILLS = st.builds(Kill, st.sampled_from(AT_THE_INTAKE), st.just(1)) | st.builds(
    Kill, st.sampled_from(AT_THE_STORE), st.integers(1, 3)
)

Truth = dict[tuple[str, str, int], float]  # by metric, writer and second


@contextmanager
def harness_of(
    collector: str, tmp_path_factory: pytest.TempPathFactory, **constants: str
) -> Iterator[CrashHarness]:
    """A harness whose jobs send and save often, so that there is much to be killed between."""
    project = Project(tmp_path_factory.mktemp("service"), {"DD_ENV": "test", "DD_API_KEY": KEY})
    project.keep(collector)
    project.set_constant("intake.py", "BATCH_SIZE", "5")
    project.set_constant("execution/delivery.py", "SAVE_EVERY", "0")
    for name, value in constants.items():
        project.set_constant("records/engine.py", name, value)
    with Intake() as unused, CrashHarness(project, unused, collector) as harness:
        yield harness


@contextmanager
def case(
    shared: CrashHarness, records: str = "", aws: Aws | None = None, **settings: str
) -> Iterator[tuple[Path, Intake]]:
    """A new case: an empty folder of records, a new checkpoint and an intake; perhaps records elsewhere."""
    prefix = f"FLEETGAUGE_{shared.collector.upper()}"
    with tempfile.TemporaryDirectory() as name, Intake(key=KEY) as intake:
        for folder in ("records", "checkpoints"):
            (Path(name) / folder).mkdir()
        environment = {f"{prefix}_{key.upper()}": value for key, value in settings.items()}
        environment |= {
            f"{prefix}_PATHS": records or f"{name}/records",
            "FLEETGAUGE_CHECKPOINTS": f"{name}/checkpoints",
            **(aws.environment if aws else {}),
        }
        shared.at(intake, **environment)
        yield Path(name) / "records", intake


@contextmanager
def case_in_s3(
    shared: CrashHarness, aws: Aws, **settings: str
) -> Iterator[tuple[Path, Intake, Callable[[], None]]]:
    """A new case whose folder is read as objects; what is in it comes there by a call."""
    aws.reset()
    bucket = Bucket(aws)
    with case(shared, f"s3://{BUCKET}/run/", aws, **settings) as (folder, intake):
        yield folder, intake, lambda: bucket.mirror(folder, "run")


def finish(shared: CrashHarness) -> None:
    """A last run, which is left alone."""
    outcome = shared.run()
    assert outcome is not None
    assert (outcome["status"], outcome["dropped"]) == ("ok", {}), outcome


class TornLines:
    """Files of several writers, of which each may have half a line that it has yet to finish."""

    def __init__(self) -> None:
        self._torn: dict[Path, str] = {}

    def append(self, path: Path, records: Iterable[Mapping[str, object]], *, torn: bool = False) -> None:
        """Write records; the last one perhaps only in part."""
        path.parent.mkdir(exist_ok=True)
        text = self._torn.pop(path, "")
        lines = [json.dumps(one) + "\n" for one in records]
        if torn and lines:
            cut = len(lines[-1]) // 2
            self._torn[path], lines[-1] = lines[-1][cut:], lines[-1][:cut]
        with path.open("a") as file:
            file.write(text + "".join(lines))

    def finish(self) -> None:
        for path in list(self._torn):
            self.append(path, ())


def held(intake: Intake, tag: str, *names: str) -> Truth:
    """What the intake holds of some metrics, by the value of a tag."""
    found: Truth = {}
    for name in names:
        for (tags, _), points in intake.series(name).items():
            [writer] = [one.removeprefix(f"{tag}:") for one in tags if one.startswith(f"{tag}:")]
            found |= {(name, writer, second): value for second, value in points.items()}
    return found
