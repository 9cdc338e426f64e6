"""What an operator writes in the values is what the service reads: the variables of a rendered pod are given
to the code that reads them."""

from __future__ import annotations

import json

import pytest

from common import registry
from common.collector import load_collector
from common.config.settings import CollectorSettings, CoreSettings, DatadogSettings, secret_variables
from common.config.settings import variables as variables_of
from common.config.sources import Configuration
from support.rendering import (
    CHART,
    Document,
    example,
    needs_helm,
    of_kind,
    pod_templates,
    render,
    variables,
)

pytestmark = needs_helm
CLAIM = {"persistentVolumeClaim": {"claimName": "records"}}


def pod_of(changes: Document, kind: str = "CronJob") -> Document:
    """The pod of the only object of a kind, with credentials from a Kubernetes secret."""
    base = {"image": {"repository": "fleetgauge"}, "datadog": {"env": "test"}, "existingSecret": "keys"}
    documents = render(base, changes)
    [template] = pod_templates(of_kind(documents, kind)).values()
    return template


def environment(template: Document) -> dict[str, str]:
    """A pod's variables as its process sees them; what is taken from elsewhere is a word."""
    found = variables(template).items()
    return {name: value if isinstance(value, str) else "taken-from-elsewhere" for name, value in found}


LISTS = {"group_by": ["kind", "tag:team="]}


def another(key: str, described: Document, default: object) -> tuple[object, object]:
    """A value that is not the default: as an operator writes it, and as the collector should see it."""
    kind = described["type"]
    if "object" in kind:
        return {"h100": 2.49, "default": 1}, ("default=1", "h100=2.49")
    if kind == "array":
        texts = LISTS.get(key, ["acme/one", "acme/two"])
        return texts, tuple(texts)
    if kind == "number":
        return 7.5, 7.5
    if kind == "boolean":
        return not default, not default
    if kind == "string":
        text = "https://example.com" if "pattern" in described else "changed"
        return text, text
    known = default if isinstance(default, int) else described.get("minimum", 0)  # required, it has none
    number = known + 1 if known < described.get("maximum", known + 1) else known - 1
    return (number, number) if kind == "integer" else (f"{number}s", number)


@pytest.mark.parametrize("name", registry.names())
def test_every_setting_of_a_collector_reaches_it(name: str) -> None:
    model: type[CollectorSettings] = load_collector(name).settings
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    described = schema["properties"]["collectors"]["properties"][name]["properties"]["settings"]["properties"]
    secrets = secret_variables(model)
    assert set(described) == {key for key, each in variables_of(model).items() if each not in secrets}
    examples = {key: another(key, described[key], model.model_fields[key].default) for key in described}
    given = {key: value for key, (value, _) in examples.items()}
    others: Document = {other: {"enabled": False} for other in registry.names()}
    others[name] = {"enabled": True, "volume": CLAIM, "settings": given}
    settings = Configuration(environment(pod_of({"collectors": others})), None).table(model, name)
    assert [getattr(settings, key) for key in examples] == [seen for _, seen in examples.values()]


def test_settings_of_a_run_reach_it() -> None:
    prices = ["h100=2.49", "default=1.20"]
    template = pod_of(
        {
            "datadog": {
                "service": "gauge",
                "site": "datadoghq.eu",
                "url": "https://intake.example.com",
                "allowPlainHttp": "intake",
            },
            "aws": {"region": "eu-west-1", "endpointUrl": "https://aws.example.com"},
            "state": {"s3": "s3://bucket/prefix"},
            "image": {"tag": "1.2.3"},
            "schedule": "*/5 * * * *",
            "seriesCap": 1_000_000,
            "proxy": {"url": "http://proxy:3128", "noProxy": ".internal"},
            "collectors": {"wandb": {"settings": {"max_runs": 1_000_000, "pause": 0, "gpu_prices": prices}}},
        }
    )
    passed = [variables(template)[f"FLEETGAUGE_WANDB_{key}"] for key in ("MAX_RUNS", "PAUSE", "GPU_PRICES")]
    assert passed == ["1000000", "0", "h100=2.49,default=1.20"]
    configuration = Configuration(environment(template), None)
    core, datadog = configuration.core, configuration.datadog
    assert (core.env, core.service, core.version) == ("test", "gauge", "1.2.3")
    assert (core.aws_region, core.aws_endpoint_url) == ("eu-west-1", "https://aws.example.com")
    assert (core.state, core.step, core.series_cap) == ("s3://bucket/prefix", 300, 1_000_000)
    assert core.proxy is not None
    assert (core.proxy.get_secret_value(), core.no_proxy) == ("http://proxy:3128", ".internal")
    assert (datadog.site, datadog.url) == ("datadoghq.eu", "https://intake.example.com")
    assert datadog.app_key is None
    known = {*variables_of(CoreSettings).values(), *variables_of(DatadogSettings).values()}
    others = [*pod_templates(example("node-records")).values(), *pod_templates(example("backfill")).values()]
    assert known <= {name for each in (template, *others) for name in variables(each)}
