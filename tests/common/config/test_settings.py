"""The models: the types of their fields, their variables, and how values are shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.config.settings import MASK, CoreSettings, DatadogSettings, in_force, secret_variables, written
from common.config.sources import Configuration
from common.errors import ConfigurationError
from common.logs import redact
from support.standins import everything
from support.toy_settings import CANARY, ToySettings, refused, toy


def test_values_are_stripped_and_parsed() -> None:
    settings = toy(
        TOY_API_KEY=f" {CANARY}\n",
        FLEETGAUGE_TOY_BASE_URL=" https://a.example/ ",
        FLEETGAUGE_TOY_PROJECTS=" acme/ants, acme/bees,, ",
        FLEETGAUGE_TOY_GRID="1m30s",
        FLEETGAUGE_TOY_LABEL=" x ",
        FLEETGAUGE_TOY_ENABLED="false",
    )
    assert settings.api_key.get_secret_value() == CANARY
    assert (settings.base_url, settings.projects) == ("https://a.example", ("acme/ants", "acme/bees"))
    assert (settings.grid, settings.label, settings.enabled) == (90, "x", False)


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        toy().pages = 3


def test_optional_secrets_are_secrets() -> None:
    assert secret_variables(DatadogSettings) == ["DD_API_KEY", "DD_APP_KEY"]
    assert secret_variables(ToySettings) == ["TOY_API_KEY", "FLEETGAUGE_TOY_HASH_KEY"]
    assert secret_variables(CoreSettings) == []


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PAGES", "0", "greater than or equal to 1"),
        ("PAGES", "many", "valid integer"),
        ("GRID", "soon", "'soon' is not a duration"),
        ("HASH_KEY", " ", "is set but empty"),
        *(("BASE_URL", url, "write a full URL") for url in ("ftp://host", "https://", "host", "https://h:x")),
        ("BASE_URL", "https://host:0", "write a full URL"),
        *(("BASE_URL", f"http://{host}", "use https") for host in ("10.0.0.1", "localhost.example")),
        ("BASE_URL", "http://127.0.0.1.example", "use https"),
        *(("BASE_URL", f"https://a.example{rest}", "the address alone") for rest in ("?", "/#x")),
        *(("BASE_URL", f"https://a.example/{odd}", "write a full URL") for odd in ("a\nb", "\u200b", "a b")),
        *(("BASE_URL", f"https://{user}@host", "credentials") for user in (CANARY, f"user:{CANARY}")),
    ],
)
def test_wrong_value_is_an_error_with_its_variable(variable: str, value: str, message: str) -> None:
    error = refused(**{f"FLEETGAUGE_TOY_{variable}": value})
    assert error.startswith(f"FLEETGAUGE_TOY_{variable}: ")
    assert message in error


@pytest.mark.parametrize("site", ["https://a.com", "datadoghq", "Datadoghq.com", "a.com/", "a..b", "a.com:1"])
def test_site_is_a_bare_name(site: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^DD_SITE: "):
        assert Configuration({"DD_SITE": site}, None).datadog


class TestCredentials:
    @given(st.text(min_size=1))
    def test_only_printable_ascii_is_accepted(self, value: str) -> None:
        text = f"key{value}"
        try:
            accepted = toy(TOY_API_KEY=text).api_key.get_secret_value()
        except ConfigurationError:
            assert not re.fullmatch("[!-~]*", text.strip())
        else:
            assert accepted == text.strip()
            assert re.fullmatch("[!-~]+", accepted)

    @pytest.mark.parametrize("character", "\r\n\t\x85\u2028 \u00a0\x00\x7f\u200bé\udcff😀")
    def test_value_with_another_character_is_refused_and_redacted(self, character: str) -> None:
        value = f"{CANARY}{character}{CANARY}"
        assert refused(TOY_API_KEY=value).startswith("TOY_API_KEY: it holds a space, a line break or")
        assert CANARY not in redact(f"{value!r} {value}")

    def test_credential_is_in_no_repr_and_redacted(self) -> None:
        settings = toy(TOY_API_KEY=f"{CANARY}\n")
        assert CANARY not in repr(settings) + str(settings) + str(settings.model_dump())
        assert redact(f"the key is {CANARY}.") == "the key is [redacted]."

    def test_proxy_password_is_redacted_in_both_spellings(self) -> None:
        core = Configuration({"HTTPS_PROXY": "http://ann:pass%40word-1@proxy.example:3128"}, None).core
        assert "word-1" not in repr(core)
        assert redact("pass@word-1 or pass%40word-1 of ann") == "[redacted] or [redacted] of ann"

    @pytest.mark.parametrize(
        "proxy",
        [
            f"http://user:{CANARY}/x@proxy:3128",
            f"http://user:[{CANARY}@proxy:3128",
            f"http://user:{CANARY}℀@proxy:3128",
            f"http://user:{CANARY}\n@proxy:3128",
            f"user:{CANARY}@proxy",
            "socks5://proxy",
        ],
    )
    def test_error_about_a_proxy_has_no_password(self, proxy: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY: write a full URL") as caught:
            Configuration({"HTTPS_PROXY": proxy}, None)
        assert CANARY not in everything(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("grid", 604_800, "7d"),
        ("grid", 5400, "90m"),
        ("grid", 0, "0s"),
        ("pages", 604_800, "604800"),
        ("enabled", True, "true"),
        ("projects", ("/", "/data"), "/,/data"),
        ("ratio", 5.0, "5"),
        ("ratio", 1234567.5, "1234567.5"),
        ("wait", None, ""),
        ("api_key", toy().api_key, MASK),
    ],
)
def test_value_is_written_as_in_a_variable(field: str, value: object, text: str) -> None:
    assert written(value, ToySettings.model_fields[field]) == text


def test_credential_in_another_variable_is_redacted_in_settings() -> None:
    rows = in_force(toy(FLEETGAUGE_TOY_LABEL=f"about {CANARY}"))
    shown = {row["setting"]: (row["value"], row["from"]) for row in rows}
    assert shown["FLEETGAUGE_TOY_LABEL"] == ("about [redacted]", "the environment")
    assert shown["FLEETGAUGE_TOY_HASH_KEY"] == ("", "not set")
