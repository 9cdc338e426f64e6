"""Whether a machine could have GPUs, by its PCI bus."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetgauge.compute.pci import lists_gpus


@pytest.mark.parametrize(
    ("functions", "listed"),
    [
        ([("0x10de", "0x030200")], True),
        ([("0x10de", "0x120000")], True),
        ([("0x1002", "0x038000")], True),
        ([("0x10de", "0x0c0330")], False),
        ([("0x8086", "0x030000")], False),
        ([("0x8086", "0x060400"), ("0x10de", "0x030200")], True),
        ([], None),
        (None, None),
    ],
)
def test_a_board_is_a_display_or_an_accelerator_of_a_known_vendor(
    functions: list[tuple[str, str]] | None, listed: bool | None, tmp_path: Path
) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    if functions is not None:
        bus.mkdir(parents=True)
    for number, (vendor, kind) in enumerate(functions or ()):
        (bus / str(number)).mkdir()
        (bus / str(number) / "vendor").write_text(f"{vendor}\n")
        (bus / str(number) / "class").write_text(f"{kind}\n")
    assert lists_gpus(tmp_path) is listed
