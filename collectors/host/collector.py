"""Reads the node through psutil and the GPU driver, which see the whole machine from inside a container too.

What a process that stays keeps from tick to tick is here: how busy the CPUs were so far, the energy of each
GPU, and the counts of the last hour.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
from pydantic import Field

from collectors.host import boards, machine, metrics
from collectors.host.boards import Board, Figure, Wanted
from collectors.host.jobs import host_pids
from collectors.host.xids import XidListener
from common.collector import Collector, Context
from common.config.settings import CollectorSettings, Texts, named
from common.errors import ConfigurationError
from common.metric import Metric, Series
from fleetgauge.compute.nvml import DriverReading, error_code, read_boards

NVML_SECONDS = 10.0
_DRIVER_NOT_LOADED = 9  # a machine without GPUs that has the library all the same

log = logging.getLogger(__name__)


class HostSettings(CollectorSettings):
    """Settings of the host collector; the node's name is FLEETGAUGE_NODE_NAME."""

    model_config = named("FLEETGAUGE_HOST_")

    paths: Texts = Field(("/",), description="File systems to measure, each by a path on it.")
    root: str = Field("", description="Where the host's own root is mounted; this process's own when empty.")
    gpu_uuid: bool = Field(False, description="Tag GPU metrics with the device's uuid as well.")
    gpu_video: bool = Field(False, description="Measure the video encoders and decoders of GPUs as well.")
    gpu_processes: bool = Field(False, description="Say which job uses how much of a GPU's memory.")


class Node:
    """The node, and what one process keeps of it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  # of what comes by itself, between two runs
        self._cpu: machine.CpuTimes | None = None
        self._known: dict[int, Board] = {}  # as it was when it last said its name
        self._energy: dict[int, int] = {}  # in millijoules, at the last look
        self._counts: dict[tuple[Metric, frozenset[tuple[str, str]]], dict[int, float]] = {}  # by second
        self._xids: XidListener | None = None
        self._pids_said = False

    def collect(self, context: Context[HostSettings]) -> Iterator[Series]:
        """Yield the node's size and how busy it is now."""
        root = _root(context.settings)
        before, self._cpu = self._cpu or machine.first_cpu_times(), machine.cpu_times()
        busy = machine.utilization(before, self._cpu)
        found = [] if busy is None else [(metrics.CPU_UTILIZATION, busy)]
        found.extend(machine.figures(root))
        for metric, value in found:
            yield metric(value, context.now)
        for path in context.settings.paths:
            try:
                for metric, value in machine.disk(path, root):
                    yield metric(value, context.now, path=path)
            except OSError as error:
                context.report.lose(f"the file system of {path}", error.strerror or str(error))
        yield from self._gpus(context, root)

    def check(self, context: Context[HostSettings]) -> Iterator[str]:
        """The node can always be read; say what it has."""
        root = _root(context.settings)
        yield f"a single run looks at the CPUs for {machine.CPU_SECONDS:g} s, --every for its whole interval"
        if self._processes(context, root):
            yield "processes on GPUs can be told by their jobs"
        listed = self._ask(context, Wanted()).boards
        if listed is None:
            yield "no GPU driver can be asked"
        else:
            silent = sum(board.lost is not False for board in listed)
            yield f"the driver lists {len(listed)} GPUs" + (f"; {silent} do not answer" if silent else "")

    def _gpus(self, context: Context[HostSettings], root: Path | None) -> Iterator[Series]:
        at = context.now
        if context.stays and (self._xids is None or self._xids.is_done()):
            self._xids = XidListener(self._clock)
        answer = self._ask(context, Wanted(context.settings.gpu_video, self._processes(context, root)))
        found = [self._named(board) for board in answer.boards or ()]
        tags = machine.description(
            root, os.environ, next((board.name for board in found if board.name), None)
        )
        yield metrics.INFO(1, at, **tags)
        if answer.boards is None:
            if answer.library_loads and answer.error and error_code(answer.error) != _DRIVER_NOT_LOADED:
                context.report.lose("the GPU driver", str(answer.error))
            return
        yield metrics.GPU_COUNT_LISTED(len(found), at)
        if None not in (answering := [board.lost for board in found]):
            yield metrics.GPU_COUNT(answering.count(False), at)
        for board in found:
            if board.error is not None:
                context.report.lose(f"GPU {board.index}", board.error)
            yield from _figures(board, context)
        yield from self._counted(found, context)

    def _ask(self, context: Context[HostSettings], wanted: Wanted) -> DriverReading[Board]:
        read = partial(boards.read, wanted=wanted)
        deadline = context.deadline.timeout(NVML_SECONDS)
        return read_boards(read, boards.unread, deadline=deadline, nvml=boards.load_pynvml())

    def _named(self, board: Board) -> Board:
        """A board that is lost no longer says what it is; its series goes on."""
        if board.name is not None:
            self._known[board.index] = board
        known = self._known.get(board.index, board)
        return replace(board, name=known.name, uuid=board.uuid or known.uuid)

    def _processes(self, context: Context[HostSettings], root: Path | None) -> Path | None:
        """Where the processes that the driver names are to be found; None where that is not asked for."""
        proc = (root or Path("/")) / "proc"
        if not context.settings.gpu_processes:
            return None
        if host_pids(proc):
            return proc
        if not self._pids_said:
            self._pids_said = True
            log.warning(
                "jobs on GPUs are left out: %s is not that of the host; give the pod hostPID or mount the "
                "host's root and name it in FLEETGAUGE_HOST_ROOT",
                proc,
            )
        return None

    def _counted(self, found: list[Board], context: Context[HostSettings]) -> Iterator[Series]:
        """Yield energy and XID errors since the last look, and again those of the last hour.

        An earlier delivery may have failed. They are sent again for their own seconds, which changes nothing.
        """
        self._count_energy(found, context)
        self._count_xids(context)
        earliest = context.window.earliest or context.now
        for (metric, tags), points in list(self._counts.items()):
            for second in [second for second in points if second < earliest]:
                del points[second]
            if points:
                times = sorted(points)
                yield metric.series(times, [points[second] for second in times], **dict(tags))
            else:
                del self._counts[metric, tags]

    def _count(self, metric: Metric, value: float, second: int, tags: Mapping[str, str]) -> None:
        points = self._counts.setdefault((metric, frozenset(tags.items())), {})
        points[second] = points.get(second, 0) + value

    def _count_energy(self, found: list[Board], context: Context[HostSettings]) -> None:
        for board in found:
            if board.energy_mj is not None:
                before = self._energy.get(board.index)
                self._energy[board.index] = board.energy_mj
                if before is not None and before <= board.energy_mj:  # or else the driver began anew
                    joules = (board.energy_mj - before) / 1000
                    self._count(metrics.GPU_ENERGY, joules, context.now, _tags(board, context))

    def _count_xids(self, context: Context[HostSettings]) -> None:
        for second, index, xid, count in self._xids.take(before=context.now) if self._xids else ():
            tags = _tags(self._known.get(index, Board(index)), context)
            self._count(metrics.GPU_XID_ERRORS, count, second, {"xid": str(xid), **tags})


def _root(settings: HostSettings) -> Path | None:
    """The host's root, from which psutil is to read as well; None where it is this process's own."""
    root = Path(settings.root) if settings.root else None
    if root is not None and not (root / "proc/stat").exists():
        raise ConfigurationError(
            f"FLEETGAUGE_HOST_ROOT is {root}, which has no proc/stat: mount the host's / there or unset it"
        )
    psutil.PROCFS_PATH = str((root or Path("/")) / "proc")
    return root


def _tags(board: Board, context: Context[HostSettings]) -> dict[str, str]:
    uuid = board.uuid if context.settings.gpu_uuid else None
    described = {"gpu": str(board.index), "gpu_type": board.name, "gpu_uuid": uuid}
    return {key: value for key, value in described.items() if value}


def _figures(board: Board, context: Context[HostSettings]) -> Iterator[Series]:
    """Yield what is known of one GPU; what is not has no series."""
    tags = _tags(board, context)
    lost = [] if board.lost is None else [Figure(metrics.GPU_LOST, int(board.lost), {})]
    for metric, value, own in (*lost, *board.figures):
        if not context.settings.gpu_uuid:
            own.pop("gpu_uuid", None)
        yield metric(value, context.now, **(tags | own))


NODE = Node()
COLLECTOR = Collector(
    name="host",
    settings=HostSettings,
    metrics=metrics.METRICS,
    collect=NODE.collect,
    check=NODE.check,
)
