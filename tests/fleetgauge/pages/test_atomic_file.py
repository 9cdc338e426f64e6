"""A file is there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetgauge.pages.atomic_file import atomic_file


def test_the_old_one_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with atomic_file(path) as file:
        file.write("new\n")
        file.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [*tmp_path.iterdir()] == [path]


def test_a_failure_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    for before in ([], [path]):
        with pytest.raises(TypeError), atomic_file(path) as file:
            file.writelines(["half", None])  # type: ignore[list-item]
        assert [*tmp_path.iterdir()] == before
        path.write_text("old")
    assert path.read_text() == "old"


def test_a_link_keeps_pointing_to_what_it_pointed_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "page.html")
    with atomic_file(tmp_path / "link") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "page.html").read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with atomic_file(pipe) as file:
        file.write("row")
    assert os.read(reader, 10) == b"row"
    os.close(reader)
    assert pipe.is_fifo()
