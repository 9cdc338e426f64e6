"""The wrapper and NeMo-RL: an instance of its client where it is there, and no reason to import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTERFACES = """
from abc import ABC, abstractmethod

class DataPlaneClient(ABC):
    @abstractmethod
    def put_samples(self): ...

class Adapter(DataPlaneClient):
    def put_samples(self, *arguments, **options): return "put"
    def adapter_only(self): return "reached"
"""


@pytest.fixture
def nemo_rl(tmp_path: Path) -> Path:
    package = tmp_path / "nemo_rl" / "data_plane"
    package.mkdir(parents=True)
    (tmp_path / "nemo_rl" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "interfaces.py").write_text(INTERFACES)
    return tmp_path


def run(program: str, *path: Path) -> str:
    """What a fresh interpreter prints, with `path` and this package importable."""
    script = f"import sys\nsys.path[:0] = {[str(ROOT), *map(str, path)]!r}\n{program}"
    command = [sys.executable, "-W", "error", "-I", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_an_instance_of_the_client_that_is_wrapped(nemo_rl: Path) -> None:
    program = """
from nemo_rl.data_plane.interfaces import Adapter, DataPlaneClient
from fleetgauge.data_plane import MetricsDataPlaneClient
client = MetricsDataPlaneClient(Adapter())
print(isinstance(client, DataPlaneClient), isinstance(client, Adapter), client.adapter_only(),
      issubclass(MetricsDataPlaneClient, DataPlaneClient), type(client) is client.__class__)
"""
    assert run(program, nemo_rl) == "True False reached True True"


def test_is_an_instance_though_nemo_rl_is_imported_later(nemo_rl: Path) -> None:
    program = """
from fleetgauge.data_plane import MetricsDataPlaneClient
client = MetricsDataPlaneClient(object())
print("nemo_rl" in sys.modules, isinstance(client, MetricsDataPlaneClient), isinstance(client, int))
from nemo_rl.data_plane.interfaces import DataPlaneClient
print(isinstance(client, DataPlaneClient), isinstance(object(), DataPlaneClient))
"""
    assert run(program, nemo_rl).split() == ["False", "True", "False", "True", "False"]


def test_an_instance_after_being_pickled(nemo_rl: Path) -> None:
    program = """
import pickle
from fleetgauge.data_plane import MetricsDataPlaneClient
from nemo_rl.data_plane.interfaces import Adapter, DataPlaneClient
client = pickle.loads(pickle.dumps(MetricsDataPlaneClient(Adapter())))
print(isinstance(client, DataPlaneClient), type(client).__name__, client.put_samples([], "p"))
"""
    assert run(program, nemo_rl) == "True MetricsDataPlaneClient put"


def test_an_instance_of_a_subclass_of_ours_keeps_its_own_class(nemo_rl: Path) -> None:
    program = """
from fleetgauge.data_plane import MetricsDataPlaneClient
from nemo_rl.data_plane.interfaces import DataPlaneClient
class Ours(MetricsDataPlaneClient): pass
print(isinstance(Ours(object()), DataPlaneClient), Ours(object()).__class__.__name__)
"""
    assert run(program, nemo_rl) == "True Ours"


def test_a_package_that_offers_the_class_only_at_its_top(nemo_rl: Path) -> None:
    (nemo_rl / "nemo_rl" / "data_plane" / "interfaces.py").unlink()
    (nemo_rl / "nemo_rl" / "data_plane" / "__init__.py").write_text(INTERFACES)
    program = """
from nemo_rl.data_plane import DataPlaneClient
from fleetgauge.data_plane import MetricsDataPlaneClient
print(isinstance(MetricsDataPlaneClient(object()), DataPlaneClient))
"""
    assert run(program, nemo_rl) == "True"


@pytest.mark.parametrize("interfaces", ["", "class DataPlaneClient: pass", "DataPlaneClient = None"])
def test_a_nemo_rl_without_such_a_class_is_no_harm(nemo_rl: Path, interfaces: str) -> None:
    (nemo_rl / "nemo_rl" / "data_plane" / "interfaces.py").write_text(interfaces)
    program = """
import nemo_rl.data_plane.interfaces
from fleetgauge.data_plane import MetricsDataPlaneClient
print(isinstance(MetricsDataPlaneClient(object()), MetricsDataPlaneClient))
"""
    assert run(program, nemo_rl) == "True"
