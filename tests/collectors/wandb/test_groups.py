"""Groups by tag values as Datadog stores them, hashed names, GPU types and prices."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wandb.groups import (
    Owner,
    Owners,
    gpu_type,
    parse_prices,
    tag_keys,
    unmatched_prices,
)
from common.names import normalise_tag

EVERYTHING = ("user", "gpu_type", "group", "job_type", "kind", "tag:team=")


def node(**more: Any) -> dict[str, Any]:
    return {"id": "x", "user": {"username": "ann"}, "group": "g", "jobType": "train", **more}


def group(by: str, said: dict[str, Any], gpu: str | None = None, **options: Any) -> str:
    [value] = Owners([by], **options).read(said, gpu, "other").group
    return value


class TestGroups:
    def test_parts_of_a_group_are_in_the_order_of_the_settings(self) -> None:
        said = node(tags=["baseline", "team=ants", "team=bees"])
        owner = Owners(EVERYTHING).read(said, "NVIDIA H100 80GB HBM3", "sweep")
        assert owner == Owner(("ann", "h100", "g", "train", "sweep", "ants"), "ann", "h100", None)
        assert Owners(EVERYTHING[::-1]).read(said, "Tesla T4", "sweep").group == (
            *("ants", "sweep", "train", "g", "t4", "ann"),
        )

    @pytest.mark.parametrize("by", EVERYTHING)
    @pytest.mark.parametrize("value", [None, "", "  ", 7, ["x"], {}, {"username": None}, {"username": 7}])
    def test_what_is_not_known_is_unknown(self, by: str, value: Any) -> None:
        said = {"id": "x", "user": value, "group": value, "jobType": value, "tags": value}
        assert group(by, said) == ("other" if by == "kind" else "unknown")

    def test_names_that_are_one_on_the_wire_are_one_group(self) -> None:
        names = ["Ann", "ann", "ANN ", " ann"]
        assert {group("user", node(user={"username": name})) for name in names} == {"ann"}

    @given(st.sampled_from(["user", "group", "tag:team="]), st.text(max_size=300))
    def test_a_value_is_what_datadog_will_store(self, by: str, text: str) -> None:
        found = group(by, {"id": "x", "user": {"username": text}, "group": text, "tags": [f"team={text}"]})
        key = tag_keys([by])[0]
        assert normalise_tag(f"{key}:{found}") == f"{key}:{found}"

    @pytest.mark.parametrize(
        ("tags", "team"),
        [(["team=x"], "x"), ([7, None, "team=y"], "y"), (["team="], "unknown"), (["xteam=z"], "unknown")],
    )
    def test_the_first_tag_with_the_prefix_tells(self, tags: list[Any], team: str) -> None:
        assert group("tag:team=", node(tags=tags)) == team


class TestTagKeys:
    @pytest.mark.parametrize(("by", "key"), [("tag:team=", "team"), ("tag:Team/", "team"), ("kind", "kind")])
    def test_tag_of_a_prefix_is_its_name(self, by: str, key: str) -> None:
        assert tag_keys([by]) == (key,)

    @pytest.mark.parametrize(
        ("group_by", "message"),
        [
            *(
                ([by], "write any of user, gpu_type")
                for by in ("tag:cost-center:", "tag:", "tag:=", "users", "tag:9x=", "tag:é=", "TAG:x=")
            ),
            *(
                ([f"tag:{name}="], "has another meaning already")
                for name in ("user", "gpu_type", "kind", "project", "entity", "run_id", "env", "host")
            ),
            *((by, "two of them make the tag") for by in (["user", "user"], ["tag:team=", "tag:team:"])),
        ],
    )
    def test_what_cannot_be_a_tag_is_an_error(self, group_by: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            tag_keys(group_by)


class TestHashes:
    def test_a_hash_is_short_stable_and_depends_on_the_key(self) -> None:
        hashes = {key: group("user", node(), hash_key=key) for key in ("k1", "k2")}
        assert hashes["k1"] == group("user", node(user={"username": "Ann"}), hash_key="k1")
        assert len({*hashes.values(), "ann"}) == 3
        assert {len(value) for value in hashes.values()} == {12}
        assert hashes["k1"] == "caff17d531b6"  # HMAC-SHA256

    def test_only_users_are_hashed_and_only_those_that_are_known(self) -> None:
        assert group("group", node(), hash_key="k") == "g"
        assert group("user", node(user=None), hash_key="k") == "unknown"

    def test_user_of_an_idle_run_is_the_same_hash_whatever_the_grouping(self) -> None:
        grouped = Owners(["user"], hash_key="k").read(node(), None, "other")
        assert grouped.group == (grouped.user,)
        assert Owners(["kind"], hash_key="k").read(node(), None, "other").user == grouped.user


class TestPrices:
    PRICES: ClassVar = {"h100": 2_490_000, "a100-80gb": 1_790_000, "default": 1_200_000}

    @pytest.mark.parametrize(
        "texts",
        [
            ["h100=2.49", " A100-80GB = 1.79", "default=1.2"],
            ["NVIDIA H100 80GB HBM3=2.49", "A100 80GB=1.79", "default=1.2"],
        ],
    )
    def test_type_of_a_price_may_be_written_as_its_driver_does(self, texts: list[str]) -> None:
        assert parse_prices([*texts, "h200=0", "t4=1000000"]) == {**self.PRICES, "h200": 0, "t4": 10**12}

    @pytest.mark.parametrize("by", [["user"], ["gpu_type"], []])
    def test_run_is_priced_by_its_type_whatever_it_is_grouped_by(self, by: list[str]) -> None:
        prices = [Owners(by, self.PRICES).read(node(), gpu, "other").price for gpu in ("NVIDIA H100", None)]
        assert prices == [2_490_000, 1_200_000]

    @pytest.mark.parametrize(
        ("gpu", "price"),
        [
            ("NVIDIA A100-SXM4-80GB", 5),
            ("NVIDIA A100-PCIE-40GB", 1),
            ("NVIDIA A100", 1),
            ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 9),
            ("Quadro RTX 6000", 3),
            ("NVIDIA RTX 6000 Ada Generation", 9),
            ("NVIDIA A800-SXM4-80GB", 9),
            ("Tesla T4", 9),
            ("Apple M2 Max", 2),
        ],
    )
    def test_price_without_size_is_for_all_sizes_of_the_model_only(self, gpu: str, price: int) -> None:
        texts = ["a100=1", "a100-80gb=5", "rtx-6000=3", "apple_m2_max=2"]
        for more, expected in ((["default=9"], price), ([], None if price == 9 else price)):
            owner = Owners([], parse_prices(texts + more)).read(node(), gpu, "other")
            assert owner.price == (expected and expected * 1_000_000)

    def test_price_that_matches_no_type_is_reported(self) -> None:
        prices = parse_prices(["a100=1", "v100-16gb=2", "h100=3", "rtx-6000=4", "default=9"])
        unmatched = unmatched_prices(prices, ["a100-80gb", "rtx-6000-ada", "v100-32gb"])
        assert unmatched == ["v100-16gb", "h100", "rtx-6000"]
        assert unmatched_prices(prices, ["a100-40gb", "v100-16gb", "h100", "rtx-6000"]) == []

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            *(
                ([text], "write a type and dollars an hour")
                for text in ("h100", "=2", "h100=", "h100=x", "h100=-1", "h100=nan", "h100=1000001")
            ),
            (["h100=1", "H100=2"], "'h100' has two prices"),
        ],
    )
    def test_what_is_no_price_is_an_error(self, texts: list[str], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse_prices(texts)


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
