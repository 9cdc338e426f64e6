"""Short names of GPUs, out of names as drivers write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wandb.gpu_types import gpu_type

NAMES = {
    "NVIDIA H100 80GB HBM3": "h100",
    "NVIDIA H100 PCIe": "h100",
    "NVIDIA H100 NVL": "h100",
    "NVIDIA H200": "h200",
    "NVIDIA B200": "b200",
    "NVIDIA GH200 480GB": "gh200",
    "NVIDIA A100-SXM4-80GB": "a100-80gb",
    "NVIDIA A100 80GB PCIe": "a100-80gb",
    "NVIDIA A100-PCIE-40GB": "a100-40gb",
    "A100-SXM4-40GB": "a100-40gb",
    "Tesla V100-SXM2-16GB": "v100-16gb",
    "Tesla V100-SXM2-32GB": "v100-32gb",
    "Tesla T4": "t4",
    "NVIDIA A10G": "a10g",
    "NVIDIA L40S": "l40s",
    "NVIDIA RTX A6000": "rtx-a6000",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "Quadro RTX 8000": "rtx-8000",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce GTX 1080 Ti": "gtx-1080-ti",
    "NVIDIA TITAN RTX": "titan-rtx",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI300X OAM": "mi300x",
    "AMD Instinct MI250X / MI250": "mi250x",
    "AMD INSTINCT MI250 (MCM) OAM AC MBA": "mi250",
    "AMD Radeon RX 7900 XTX": "rx-7900-xtx",
}


@pytest.mark.parametrize(("name", "short"), NAMES.items())
def test_a_known_gpu_has_a_short_name(name: str, short: str) -> None:
    assert gpu_type(name) == short


@pytest.mark.parametrize(
    "name", ["Apple M2 Max", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "Graphics Device", "NVIDIA", "80GB", ""]
)
def test_a_name_that_the_rule_does_not_know_stays_as_it_is(name: str) -> None:
    assert gpu_type(f" {name} ") == name


@given(st.text(max_size=60) | st.sampled_from([*NAMES]))
def test_a_short_name_is_its_own_short_name(name: str) -> None:
    assert gpu_type(gpu_type(name)) == gpu_type(name)


@given(st.sampled_from([*NAMES]), st.sampled_from([str.upper, str.lower, str.title]))
def test_case_makes_no_difference_to_what_is_known(name: str, change: type[str]) -> None:
    assert gpu_type(change(name)) == NAMES[name]
