"""Files that a person asked for: there whole, or not at all with a sentence on why."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from common.errors import ConfigurationError
from fleetgauge.pages.atomic_file import atomic_file


@contextmanager
def output_file(path: Path, option: str) -> Iterator[TextIO]:
    """The file that an option names, to be written; in place once it is complete."""
    with _explained(path, option), atomic_file(path) as file:
        yield file


def check_output(path: Path, option: str) -> None:
    """Raise before any work is done where its result could not be written."""
    with _explained(path, option):
        if path.is_dir() and option != "--html":  # a page knows what to call itself
            raise IsADirectoryError(0, "it is a directory")
        if path.is_dir() or path.is_file() or not path.exists():
            tempfile.TemporaryFile(dir=path.resolve() if path.is_dir() else path.resolve().parent).close()


@contextmanager
def _explained(path: Path, option: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{option}: {path} cannot be written ({error.strerror or error}): "
            "name a file in a directory that exists, may be written to and has room"
        ) from error
