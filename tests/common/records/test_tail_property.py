"""Whatever a writer does to its files, and wherever reading is cut, each record is delivered exactly once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.records.entry import Entry
from common.records.saved import SavedState
from common.records.tail import Tail
from fleetgauge import records
from fleetgauge.records import identity

START = 2_000_000_000
FILES = ("a.jsonl", "b.jsonl")


def line(run: str, seq: int, padding: int = 0) -> bytes:
    return json.dumps({"run_id": run, "seq": seq, "x": "x" * padding}).encode() + b"\n"


class WritersAndTail(RuleBasedStateMachine):
    """Two writers on two paths, and a tail that is killed at will and starts from what was saved."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.state: dict[str, object] = {}
        self.delivered: Counter[tuple[str, int]] = Counter()
        self.written: set[tuple[str, int]] = set()
        self.next_seq: Counter[str] = Counter()
        self.rotations = 0
        self.clock = START

    def teardown(self) -> None:
        shutil.rmtree(self.directory)

    def path(self, name: str) -> Path:
        return self.directory / name

    def touch(self, path: Path) -> None:
        """Give a file the time of our own clock, on which the tail's ticks run too."""
        os.utime(path, (self.clock, self.clock))

    @rule(seconds=st.integers(1, 5))
    def time_passes(self, seconds: int) -> None:
        self.clock += seconds

    def new_line(self, run: str, padding: int) -> bytes:
        seq = self.next_seq[run]
        self.next_seq[run] += 1
        self.written.add((run, seq))
        return line(run, seq, padding)

    @rule(
        name=st.sampled_from(FILES),
        run=st.sampled_from(["r1", "r2"]),
        count=st.integers(1, 5),
        padding=st.integers(0, 90),
    )
    def append(self, name: str, run: str, count: int, padding: int) -> None:
        with self.path(name).open("ab") as file:
            for _ in range(count):
                file.write(self.new_line(run, padding))
        self.touch(self.path(name))

    @rule(name=st.sampled_from(FILES), run=st.sampled_from(["r1", "r2"]), kept=st.integers(1, 20))
    def tear(self, name: str, run: str, kept: int) -> None:
        """A writer dies in the middle of a line; the next one on the file may or may not notice."""
        with self.path(name).open("ab") as file:
            file.write(self.new_line(run, 0)[:kept])
        self.touch(self.path(name))

    @rule(
        name=st.sampled_from(FILES),
        junk=st.sampled_from([b"\n", b"junk\n", b"\0\0\0", b"\xff\n", b"z" * 400]),
    )
    def damage(self, name: str, junk: bytes) -> None:
        with self.path(name).open("ab") as file:
            file.write(junk)
        self.touch(self.path(name))

    @rule(name=st.sampled_from(FILES), own=st.booleans(), compress=st.booleans())
    def rotate(self, name: str, own: bool, compress: bool) -> None:
        path = self.path(name)
        if not path.exists():
            return
        self.rotations += 1
        number = self.rotations
        target = self.path(f"{path.stem}.{number:06d}.jsonl" if own else f"{name}.{number}")
        path.rename(target)
        if compress:
            Path(f"{target}.gz").write_bytes(gzip.compress(target.read_bytes()))
            self.touch(Path(f"{target}.gz"))
            target.unlink()

    @rule(name=st.sampled_from(FILES), share=st.floats(0, 1))
    def truncate(self, name: str, share: float) -> None:
        path = self.path(name)
        if path.exists():
            os.truncate(path, int(path.stat().st_size * share))
            self.touch(path)

    @rule(name=st.sampled_from(FILES), in_place=st.booleans(), old=st.booleans())
    def replace(self, name: str, in_place: bool, old: bool) -> None:
        """Other content under the same name: new, or what the run wrote before, from its start."""
        again = sorted(self.written)[:6] if old else []
        content = b"".join(line(run, seq) for run, seq in again) + self.new_line("r3", 5)
        if in_place:
            self.path(name).write_bytes(content)
        else:
            self.path("other.tmp").write_bytes(content)
            self.path("other.tmp").rename(self.path(name))
        self.touch(self.path(name))

    @rule(name=st.sampled_from(FILES))
    def delete(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    @rule(name=st.sampled_from(FILES))
    def copy(self, name: str) -> None:
        if self.path(name).exists():
            shutil.copy(self.path(name), self.path("copy.jsonl"))
            self.touch(self.path("copy.jsonl"))

    @rule(
        budget=st.integers(1, 3000),
        killed_after=st.integers(0, 30),
        leave=st.integers(0, 3),
        often=st.booleans(),
    )
    def tick(self, budget: int, killed_after: int, leave: int, often: bool) -> None:
        """A tick that dies: only what came before the last mark that was saved is delivered."""
        for delivered, changes in self.read(budget, leave, often):
            if killed_after <= 0:
                event("killed in the middle")
                return
            killed_after -= max(1, len(delivered))
            self.save(delivered, changes)

    def save(self, delivered: list[tuple[str, int]], changes: dict[str, object]) -> None:
        self.delivered.update(delivered)
        for key, value in json.loads(json.dumps(changes)).items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    def read(
        self, budget: int, leave: int, often: bool
    ) -> Iterator[tuple[list[tuple[str, int]], dict[str, object]]]:
        tail = Tail(
            [str(self.directory)],
            SavedState(self.state),
            now=self.clock,
            identity=identity,
            bytes_per_tick=budget,
            max_line_bytes=300,
        )
        for file in tail.files():
            taken: list[Entry] = []
            for entry in file.entries():
                if leave and len(list(file.peek())) <= leave:
                    break
                if often and taken:
                    yield [one.identity for one in taken if one.identity], file.changes()
                    taken = []
                taken.append(entry)
            yield [one.identity for one in taken if one.identity], file.changes()
        yield [], dict(tail.expired())

    @precondition(lambda self: self.written)
    @rule()
    def read_all(self) -> None:
        """Left in peace, the tail delivers every complete record that is on disk, and nothing else."""
        for delivered, changes in self.read(1_000_000, 0, often=False):
            self.save(delivered, changes)
        for path in self.directory.iterdir():
            for value in straight(path):
                assert self.delivered[value] == 1, f"{value} of {path.name}"

    @invariant()
    def nothing_is_delivered_twice_or_invented(self) -> None:
        assert all(count == 1 for count in self.delivered.values())
        assert self.delivered.keys() <= self.written


def straight(path: Path) -> Iterator[tuple[str, int]]:
    with uncompressed(path) as plain:
        for value in records.read(plain):
            found = identity(value)
            assert found
            if len(json.dumps(value)) <= 300:
                yield found


@contextmanager
def uncompressed(path: Path) -> Iterator[Path]:
    if path.suffix != ".gz":
        yield path
        return
    with tempfile.NamedTemporaryFile() as plain:
        plain.write(gzip.decompress(path.read_bytes()))
        plain.flush()
        yield Path(plain.name)


WritersAndTail.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestWritersAndTail = WritersAndTail.TestCase
