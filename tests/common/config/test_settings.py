"""Where a value comes from, in which order, and what is said when it is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from common.config.file import ConfigurationFile
from common.config.settings import (
    CollectorSettings,
    CoreSettings,
    DatadogSettings,
    Secret,
    Texts,
    Url,
    is_loopback,
    load,
    named,
    refuse_unknown_variables,
    secret_variables,
    variables,
)
from common.errors import ConfigurationError, NotConfiguredError
from common.logs import redact
from support.standins import everything

CANARY = "canary-secret-value"


class ToySettings(CollectorSettings):
    """A collector with one setting of every kind."""

    model_config = named("FLEETGAUGE_TOY_")

    api_key: Secret = Field(validation_alias="TOY_API_KEY")
    projects: Texts = ()
    base_url: Url = "https://toy.example"
    pages: int = Field(10, ge=1)


def toy(file: dict[str, Any] | None = None, **environ: str) -> ToySettings:
    return load(
        ToySettings,
        "toy",
        environ={"TOY_API_KEY": CANARY, **environ},
        file=ConfigurationFile("toy.toml", {"toy": file or {}}),
    )


def core(file: dict[str, Any] | None = None, **environ: str) -> CoreSettings:
    return load(CoreSettings, None, environ=environ, file=ConfigurationFile("core.toml", file or {}))


class TestSources:
    def test_the_environment_beats_the_file_and_the_file_the_default(self) -> None:
        assert toy().pages == 10
        assert toy({"pages": 20}).pages == 20
        assert toy({"pages": 20}, FLEETGAUGE_TOY_PAGES="30").pages == 30

    @pytest.mark.parametrize("empty", ["", "  ", "\n"])
    def test_what_is_set_to_nothing_is_not_set(self, empty: str) -> None:
        assert toy({"pages": 20}, FLEETGAUGE_TOY_PAGES=empty).pages == 20
        assert core({"env": empty}).env is None
        assert core({"service": empty}).service == "fleetgauge"

    def test_values_are_stripped(self) -> None:
        settings = toy(TOY_API_KEY=f" {CANARY}\n", FLEETGAUGE_TOY_BASE_URL=" https://a.example/ ")
        assert settings.api_key.get_secret_value() == CANARY
        assert settings.base_url == "https://a.example"
        assert core(DD_ENV=" dev\n").env == "dev"

    def test_a_list_is_written_with_commas_or_as_a_list_in_the_file(self) -> None:
        assert toy(FLEETGAUGE_TOY_PROJECTS=" acme/ants, acme/bees,, ").projects == ("acme/ants", "acme/bees")
        assert toy({"projects": ["acme/ants"]}).projects == ("acme/ants",)
        assert toy({"projects": "a,b"}).projects == ("a", "b")

    def test_every_core_setting_has_the_variable_users_know(self) -> None:
        assert variables(CoreSettings) == {
            "env": "DD_ENV",
            "service": "DD_SERVICE",
            "version": "DD_VERSION",
            "secret_prefix": "FLEETGAUGE_SECRET_PREFIX",
            "aws_region": "AWS_REGION",
            "aws_endpoint_url": "AWS_ENDPOINT_URL",
            "state": "FLEETGAUGE_STATE",
            "step": "FLEETGAUGE_STEP",
            "series_cap": "FLEETGAUGE_SERIES_CAP",
            "instance": "FLEETGAUGE_INSTANCE",
            "node_name": "FLEETGAUGE_NODE_NAME",
            "node_local": "FLEETGAUGE_NODE_LOCAL",
            "ready_file": "FLEETGAUGE_READY_FILE",
            "allow_plain_http": "FLEETGAUGE_ALLOW_PLAIN_HTTP",
            "proxy": "HTTPS_PROXY",
            "no_proxy": "NO_PROXY",
        }
        assert variables(ToySettings)["pages"] == "FLEETGAUGE_TOY_PAGES"

    def test_a_secret_that_may_be_absent_is_a_secret_too(self) -> None:
        assert secret_variables(DatadogSettings) == ["DD_API_KEY", "DD_APP_KEY"]
        assert secret_variables(CoreSettings) == []

    def test_defaults(self) -> None:
        settings = core()
        assert (settings.env, settings.service, settings.step, settings.series_cap) == (
            None,
            "fleetgauge",
            900,
            20_000,
        )
        assert core(FLEETGAUGE_STEP="1m30s").step == 90
        assert core({"step": 60}).step == 60

    def test_the_address_is_the_sites_or_the_one_given(self) -> None:
        def address(**environ: str) -> str:
            given = {"DD_API_KEY": CANARY, **environ}
            return load(DatadogSettings, "datadog", environ=given, file=ConfigurationFile()).address

        assert address() == "https://api.datadoghq.com"
        assert address(DD_SITE="us5.datadoghq.com") == "https://api.us5.datadoghq.com"
        assert address(FLEETGAUGE_DD_URL="http://127.0.0.1:8126/") == "http://127.0.0.1:8126"


class TestMissing:
    def test_a_missing_setting_is_not_configured_and_every_place_is_named(self) -> None:
        with pytest.raises(NotConfiguredError) as caught:
            toy(TOY_API_KEY="")
        assert str(caught.value) == (
            "TOY_API_KEY is not set; looked in: the environment; AWS Secrets Manager was not asked "
            "(FLEETGAUGE_SECRET_PREFIX is not set); the configuration file toy.toml"
        )

    def test_several_are_named_together_and_no_file_is_said_to_be_none(self) -> None:
        class Two(CollectorSettings):
            model_config = named("FLEETGAUGE_TWO_")
            first: str
            second: str

        with pytest.raises(NotConfiguredError) as caught:
            load(Two, "two", environ={}, file=ConfigurationFile())
        assert str(caught.value) == (
            "FLEETGAUGE_TWO_FIRST, FLEETGAUGE_TWO_SECOND are not set; looked in: the environment; "
            "no configuration file was given"
        )

    def test_a_wrong_value_beside_a_missing_one_is_an_error_and_no_reason_to_skip(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            toy(TOY_API_KEY="", FLEETGAUGE_TOY_PAGES="0")
        assert type(caught.value) is ConfigurationError


class TestWrongValues:
    @pytest.mark.parametrize(
        ("variable", "value", "said"),
        [
            ("FLEETGAUGE_STEP", "0", "greater than or equal to 1"),
            ("FLEETGAUGE_STEP", "3601", "less than or equal to 3600"),
            ("FLEETGAUGE_STEP", "soon", "'soon' is not a duration"),
            ("FLEETGAUGE_SERIES_CAP", "0", "greater than or equal to 1"),
            ("FLEETGAUGE_SERIES_CAP", "many", "valid integer"),
            ("AWS_ENDPOINT_URL", "ftp://host", "write a full URL, such as https://host"),
            ("AWS_ENDPOINT_URL", "https://", "write a full URL"),
            ("AWS_ENDPOINT_URL", "host", "write a full URL"),
            ("AWS_ENDPOINT_URL", "https://host:port", "write a full URL"),
            ("AWS_ENDPOINT_URL", "https://host:0", "write a full URL"),
            (
                "AWS_ENDPOINT_URL",
                "http://10.0.0.1",
                "plain http is allowed to loopback and FLEETGAUGE_ALLOW_PLAIN_HTTP",
            ),
            ("AWS_ENDPOINT_URL", "http://localhost.example", "use https"),
            ("FLEETGAUGE_ALLOW_PLAIN_HTTP", "http://host", "write a "),
            ("FLEETGAUGE_ALLOW_PLAIN_HTTP", "user@host", "write a host or host:port"),
            ("FLEETGAUGE_ALLOW_PLAIN_HTTP", "host/path", "write a host or host:port"),
            ("HTTPS_PROXY", "proxy:3128", "write a full URL, such as http://proxy:3128"),
            ("HTTPS_PROXY", "socks5://proxy", "write a full URL"),
        ],
    )
    def test_the_variable_is_named_and_what_is_wrong_with_it(
        self, variable: str, value: str, said: str
    ) -> None:
        with pytest.raises(ConfigurationError) as caught:
            core(None, **{variable: value})
        assert type(caught.value) is ConfigurationError
        assert str(caught.value).startswith(f"{variable}: ")
        assert said in str(caught.value)

    @pytest.mark.parametrize(("value", "seconds"), [("1", 1), ("1h", 3600)])
    def test_the_bounds_of_the_step_are_allowed(self, value: str, seconds: int) -> None:
        assert core(FLEETGAUGE_STEP=value).step == seconds

    @pytest.mark.parametrize(
        ("file", "said"),
        [
            ({"step": "soon"}, "core.toml: step in the top level: 'soon' is not a duration"),
            ({"series_cap": [1]}, "core.toml: series_cap in the top level: Input should be a valid integer"),
        ],
    )
    def test_a_wrong_value_of_the_file_is_named_with_its_place(self, file: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            core(file)
        assert str(caught.value).startswith(said)

    def test_in_a_table_too_unless_the_environment_has_the_value(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^toy\.toml: pages in \[toy\]: Input should be greater"
        ):
            toy({"pages": 0})
        with pytest.raises(ConfigurationError, match=r"^FLEETGAUGE_TOY_PAGES: Input should be greater"):
            toy({"pages": 0}, FLEETGAUGE_TOY_PAGES="-1")
        with pytest.raises(ConfigurationError) as caught:
            toy({"projects": [1, 2]})
        assert str(caught.value) == "toy.toml: projects in [toy]: Input should be a valid string"

    @pytest.mark.parametrize("url", ["https://a.example/?x=1", "https://a.example?", "https://a.example/#x"])
    def test_an_address_with_a_query_string_or_fragment_is_refused(self, url: str) -> None:
        given = {"DD_API_KEY": CANARY, "FLEETGAUGE_DD_URL": url}
        with pytest.raises(
            ConfigurationError, match=r"^FLEETGAUGE_DD_URL: a query string or fragment does not belong here"
        ):
            load(DatadogSettings, "datadog", environ=given, file=ConfigurationFile())

    @pytest.mark.parametrize(
        "url", ["https://a.example/x y", "https://a.exa\nmple", "https://a.example/\u200b"]
    )
    def test_an_address_with_what_cannot_be_seen_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^FLEETGAUGE_TOY_BASE_URL: it holds a space, a line"):
            toy(FLEETGAUGE_TOY_BASE_URL=url)

    def test_all_that_is_wrong_is_said_at_once(self) -> None:
        with pytest.raises(ConfigurationError, match=r"FLEETGAUGE_STEP: .*; FLEETGAUGE_SERIES_CAP: "):
            core(FLEETGAUGE_STEP="0", FLEETGAUGE_SERIES_CAP="0")

    @pytest.mark.parametrize(
        "url", [f"https://user:{CANARY}@host", f"https://{CANARY}@host", f"https://:{CANARY}@host"]
    )
    def test_credentials_in_a_url_are_refused_and_not_shown(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match="credentials do not belong in a URL") as caught:
            core(AWS_ENDPOINT_URL=url)
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize(
        "proxy",
        [
            f"http://user:{CANARY}/x@proxy:3128",
            f"http://user:[{CANARY}@proxy:3128",
            f"http://user:{CANARY}℀@proxy:3128",
            f"http://user:{CANARY}@proxy:99999",
            f"user:{CANARY}@proxy",
        ],
    )
    def test_no_error_about_a_proxy_shows_its_password(self, proxy: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^HTTPS_PROXY: write a full URL") as caught:
            core(HTTPS_PROXY=proxy)
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize("value", [5, [CANARY], {"nested": CANARY}])
    def test_no_error_about_a_secret_shows_its_value(self, value: object) -> None:
        with pytest.raises(ConfigurationError, match=r"^f: api_key in \[toy\]: ") as caught:
            load(ToySettings, "toy", environ={}, file=ConfigurationFile("f", {"toy": {"api_key": value}}))
        assert CANARY not in everything(caught.value)

    @pytest.mark.parametrize(
        "site",
        ["https://datadoghq.com", "datadoghq", "Datadoghq.com", "datadoghq.com/", "a..b", "datadoghq.com:1"],
    )
    def test_a_site_is_a_bare_name(self, site: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^DD_SITE: write the bare site, such as datadoghq\.eu"):
            load(
                DatadogSettings,
                "datadog",
                environ={"DD_API_KEY": CANARY, "DD_SITE": site},
                file=ConfigurationFile(),
            )


class TestSecrets:
    def test_a_secret_is_in_no_repr_and_redacted_from_then_on(self) -> None:
        settings = toy(TOY_API_KEY=f"{CANARY}\n")
        assert CANARY not in repr(settings) + str(settings) + str(settings.model_dump())
        assert redact(f"the key is {CANARY}.") == "the key is [redacted]."

    @pytest.mark.parametrize(
        ("inside", "kind"),
        [
            ("\n", "a line break"),
            ("\r\n", "a line break"),
            ("\u2028", "a line break"),
            ("\t", "a tab"),
            (" ", "a space"),
            ("\u00a0", "a space"),
            ("\x00", "a control character"),
            ("\x1b", "a control character"),
            ("\x7f", "a control character"),
            ("\u200b", "an invisible character, such as a zero-width space"),
            ("\ufeff", "an invisible character, such as a zero-width space"),
            ("é", "a letter that is not ASCII"),
            ("鍵", "a letter that is not ASCII"),
            ("\udcff", "bytes that are not UTF-8"),
            ("😀", "a character that is not ASCII"),
        ],
    )
    @pytest.mark.parametrize("where", ["environment", "file"])
    def test_what_no_header_can_carry_is_refused_by_its_kind(
        self, inside: str, kind: str, where: str
    ) -> None:
        value = f"{CANARY}{inside}{CANARY}"
        in_file = where == "file"
        file = ConfigurationFile("f", {"toy": {"api_key": value} if in_file else {}})
        with pytest.raises(ConfigurationError) as caught:
            load(ToySettings, "toy", environ={} if in_file else {"TOY_API_KEY": value}, file=file)
        name = "f: api_key in [toy]" if in_file else "TOY_API_KEY"
        assert str(caught.value) == (
            f"{name}: it holds {kind}; a credential is printable ASCII without spaces"
        )
        assert type(caught.value) is ConfigurationError
        assert CANARY not in everything(caught.value)
        assert CANARY not in redact(f"{value!r} {value}")

    @given(st.text(min_size=1))
    def test_whatever_is_let_pass_is_printable_ascii(self, value: str) -> None:
        try:
            passed = toy(TOY_API_KEY=f"key{value}").api_key.get_secret_value()
        except ConfigurationError:
            assert not re.fullmatch("[!-~]*", f"key{value}".strip())
        else:
            assert passed == f"key{value}".strip()
            assert re.fullmatch("[!-~]+", passed)

    @pytest.mark.parametrize("inside", ["\n", "\t", "é", "\x00"])
    def test_of_a_proxys_password_too(self, inside: str) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^HTTPS_PROXY: it holds a .* write others as %XX$"
        ) as caught:
            core(HTTPS_PROXY=f"http://user:{CANARY}{inside}@proxy:3128")
        assert CANARY not in everything(caught.value)

    def test_the_proxy_is_in_no_repr(self) -> None:
        assert CANARY not in repr(core(HTTPS_PROXY=f"http://user:{CANARY}@proxy:3128"))

    def test_settings_cannot_be_changed(self) -> None:
        with pytest.raises(ValueError, match="frozen"):
            core().env = "other"


class TestUnknownKeys:
    def test_at_the_top_level_of_the_file(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            core({"servce": "x"})
        assert (
            str(caught.value) == "core.toml: unknown key 'servce' in the top level (did you mean 'service'?)"
        )

    def test_in_a_table_of_the_file(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            toy({"page": 1})
        assert str(caught.value) == "toy.toml: unknown key 'page' in [toy] (did you mean 'pages'?)"

    def test_all_of_them_are_named(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            toy({"page": 1, "projcts": "a"})
        assert str(caught.value) == (
            "toy.toml: unknown key 'page' in [toy] (did you mean 'pages'?), "
            "unknown key 'projcts' in [toy] (did you mean 'projects'?)"
        )
        with pytest.raises(ConfigurationError, match=r"FLEETGAUGE_TOY_A; unknown variable FLEETGAUGE_TOY_B"):
            refuse_unknown_variables({"FLEETGAUGE_TOY_A": "1", "FLEETGAUGE_TOY_B": "1"}, ())

    def test_one_that_may_be_a_credential_is_not_shown(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            toy({f"{CANARY}9": "api_key"})
        assert str(caught.value) == (
            "toy.toml: an unknown key in [toy] that is not shown, because it may be a credential"
        )
        assert CANARY not in everything(caught.value)

    def test_a_variable_is_no_key_of_the_file(self) -> None:
        with pytest.raises(ConfigurationError, match="unknown key 'FLEETGAUGE_TOY_PAGES'"):
            toy({"FLEETGAUGE_TOY_PAGES": 1})

    def test_a_table(self) -> None:
        file = ConfigurationFile("f.toml", {"datadgo": {}, "env": "x"})
        with pytest.raises(ConfigurationError) as caught:
            file.refuse_unknown_tables(["host"])
        assert str(caught.value) == "f.toml: unknown table [datadgo] (did you mean 'datadog'?)"
        ConfigurationFile("f.toml", {"datadog": {}, "host": {}, "env": "x"}).refuse_unknown_tables(["host"])

    def test_a_variable_under_our_prefix(self) -> None:
        models = (CoreSettings, ToySettings)
        with pytest.raises(ConfigurationError) as caught:
            refuse_unknown_variables({"FLEETGAUGE_TOY_PAGE": "1"}, models)
        assert (
            str(caught.value) == "unknown variable FLEETGAUGE_TOY_PAGE (did you mean 'FLEETGAUGE_TOY_PAGES'?)"
        )
        refuse_unknown_variables({"FLEETGAUGE_TOY_PAGES": "1", "FLEETGAUGE_STEP": "1", "FLEET": "1"}, models)

    def test_the_hint_may_be_a_variable_of_another_collector(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            refuse_unknown_variables(
                {"FLEETGAUGE_XENA_PATHS": "1"}, (CoreSettings,), lambda: ["FLEETGAUGE_XENNA_PATHS"]
            )
        assert str(caught.value) == (
            "unknown variable FLEETGAUGE_XENA_PATHS (did you mean 'FLEETGAUGE_XENNA_PATHS'?)"
        )


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("example.com", False),
        ("127.0.0.1.example", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_and_nothing_else(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


def test_the_password_of_a_proxy_is_a_secret_as_it_is_and_as_it_is_written() -> None:
    core(HTTPS_PROXY="http://ann:pass%40word-1@proxy.example:3128")
    assert redact("pass@word-1 or pass%40word-1 of ann") == "[redacted] or [redacted] of ann"
