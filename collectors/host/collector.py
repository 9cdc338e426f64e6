"""Reads the node through psutil and the GPU driver, which see the whole machine from inside a container too.

What a process that stays remembers from tick to tick is here: how busy the CPUs were so far, the energy of
each GPU, the counts that were not delivered yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
from common.metric import Mark, Sample
from fleetgauge.compute.nvml import DriverAnswer, ask_driver, code_of

NVML_SECONDS = 10.0
_DRIVER_NOT_LOADED = 9  # a machine without GPUs that has the library all the same
COUNTED = "counted_until"


class HostSettings(CollectorSettings):
    """Settings of the host collector; the node's name is FLEETGAUGE_NODE_NAME."""

    model_config = named("FLEETGAUGE_HOST_")

    paths: Texts = Field(("/",), description="File systems to measure, each by a path on it.")
    root: str = Field("", description="Where the host's own root is mounted; this process's own when empty.")
    gpu_uuid: bool = Field(False, description="Tag GPU metrics with the device's uuid as well.")
    gpu_video: bool = Field(False, description="Measure the video encoders and decoders of GPUs as well.")
    gpu_processes: bool = Field(False, description="Say which job uses how much of a GPU's memory.")


class Node:
    """The node, and what one process remembers of it."""

    def __init__(self) -> None:
        self._cpu: machine.CpuTimes | None = None
        self._known: dict[int, Board] = {}  # as it was when it last said its name
        self._energy: dict[int, int] = {}  # in millijoules, at the last look
        self._counts: list[tuple[int, Sample]] = []  # by the tick that first sent them
        self._xids: XidListener | None = None
        self._pids_said = False

    def collect(self, context: Context[HostSettings]) -> Iterator[Sample | Mark]:
        """The node's size and how busy it is, each at the second it was measured."""
        root = _root(context.settings)
        before, self._cpu = self._cpu or machine.first_cpu_times(), machine.cpu_times()
        busy = machine.utilization(before, self._cpu)
        found = [] if busy is None else [(metrics.CPU_UTILIZATION, busy)]
        found.extend(machine.figures(root))
        at = int(context.clock())
        for metric, value in found:
            yield metric(value, at, on_host=context.node_name)
        for path in context.settings.paths:
            try:
                for metric, value in machine.disk(path, root):
                    yield metric(value, int(context.clock()), on_host=context.node_name, path=path)
            except OSError as error:
                context.lose(f"the file system of {path}", error.strerror or str(error))
        yield from self._gpus(context, root)

    def check(self, context: Context[HostSettings]) -> Iterator[str]:
        """The node can always be read; say under which name it will appear and what it has."""
        root = _root(context.settings)
        yield f"metrics will carry the host {context.node_name}"
        yield f"a single run looks at the CPUs for {machine.CPU_SECONDS:g} s, --every for its whole interval"
        if self._processes(context, root):
            yield "processes on GPUs can be told by their jobs"
        listed = self._ask(context, Wanted()).boards
        if listed is None:
            yield "no GPU driver can be asked"
        else:
            silent = sum(board.lost is not False for board in listed)
            yield f"the driver lists {len(listed)} GPUs" + (f"; {silent} do not answer" if silent else "")

    def _gpus(self, context: Context[HostSettings], root: Path | None) -> Iterator[Sample | Mark]:
        if context.stays and (self._xids is None or self._xids.is_done()):
            self._xids = XidListener(context.clock)
        node = context.node_name
        answer = self._ask(context, Wanted(context.settings.gpu_video, self._processes(context, root)))
        at = int(context.clock())
        found = [self._named(board) for board in answer.boards or ()]
        tags = machine.description(
            root, os.environ, next((board.name for board in found if board.name), None)
        )
        yield metrics.INFO(1, at, on_host=node, **tags)
        if answer.boards is None:
            if answer.library_loads and answer.error and code_of(answer.error) != _DRIVER_NOT_LOADED:
                context.lose("the GPU driver", str(answer.error))
            return
        yield metrics.GPU_COUNT_LISTED(len(found), at, on_host=node)
        if None not in (answering := [board.lost for board in found]):
            yield metrics.GPU_COUNT(answering.count(False), at, on_host=node)
        for board in found:
            if board.error is not None:
                context.lose(f"GPU {board.index}", board.error)
            yield from _samples(board, at, context)
        yield from self._counted(found, at, context)

    def _ask(self, context: Context[HostSettings], wanted: Wanted) -> DriverAnswer[Board]:
        read = partial(boards.read, wanted=wanted)
        return ask_driver(read, boards.unread, deadline=context.deadline.timeout(NVML_SECONDS))

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
            context.log.warning(
                "jobs on GPUs are left out: %s is not that of the host; give the pod hostPID or mount the "
                "host's root and name it in FLEETGAUGE_HOST_ROOT",
                proc,
            )
        return None

    def _counted(
        self, found: list[Board], at: int, context: Context[HostSettings]
    ) -> Iterator[Sample | Mark]:
        """Energy and XID errors since the last look, and again those that were not delivered then.

        They are sent again as they were, at their own seconds, so that nothing counts twice.
        """
        delivered = context.state.get(COUNTED)
        since = delivered if isinstance(delivered, int) else 0
        self._counts = [
            (tick, sample)
            for tick, sample in self._counts
            if tick > since and sample.timestamp > context.sendable_since
        ]
        new = [*self._energy_samples(found, at, context), *self._xid_samples(at, context)]
        self._counts += [(at, sample) for sample in new]
        yield from (sample for _, sample in self._counts)
        if self._counts:
            yield Mark({COUNTED: at})

    def _energy_samples(
        self, found: list[Board], at: int, context: Context[HostSettings]
    ) -> Iterator[Sample]:
        for board in found:
            if board.energy_mj is not None:
                before = self._energy.get(board.index)
                self._energy[board.index] = board.energy_mj
                if before is not None and before <= board.energy_mj:  # or else the driver began anew
                    joules = (board.energy_mj - before) / 1000
                    yield metrics.GPU_ENERGY(joules, at, on_host=context.node_name, **_tags(board, context))

    def _xid_samples(self, at: int, context: Context[HostSettings]) -> Iterator[Sample]:
        for second, index, xid, count in self._xids.take(before=at) if self._xids else ():
            tags = _tags(self._known.get(index, Board(index)), context)
            yield metrics.GPU_XID_ERRORS(count, second, on_host=context.node_name, xid=str(xid), **tags)


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


def _samples(board: Board, at: int, context: Context[HostSettings]) -> Iterator[Sample]:
    """What is known of one GPU; what is not has no sample."""
    tags = _tags(board, context)
    lost = [] if board.lost is None else [Figure(metrics.GPU_LOST, int(board.lost), {})]
    for metric, value, own in (*lost, *board.figures):
        if not context.settings.gpu_uuid:
            own.pop("gpu_uuid", None)
        yield metric(value, at, on_host=context.node_name, **(tags | own))


NODE = Node()
COLLECTOR = Collector(
    name="host",
    settings=HostSettings,
    metrics=metrics.METRICS,
    collect=NODE.collect,
    check=NODE.check,
    per_node=True,
)
