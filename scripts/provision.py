#!/usr/bin/env python3
"""Bring dashboards, monitors and metadata in Datadog to what is declared: a dry run without `--push`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from common import logs, registry, signals  # noqa: E402
from common.cli import streams  # noqa: E402
from common.cli.arguments import interval  # noqa: E402
from common.cli.progress import watcher  # noqa: E402
from common.config.file import DATADOG_TABLE, PROVISION_TABLE  # noqa: E402
from common.config.settings import CoreSettings, DatadogSettings  # noqa: E402
from common.config.sources import Configuration, refuse_unknown_variables  # noqa: E402
from common.datadog.documents import Place, dashboard_document, monitor_document  # noqa: E402
from common.datadog.marks import DASHBOARD, MONITOR, owner  # noqa: E402
from common.datadog.provision_settings import ProvisioningKeys, ProvisionSettings  # noqa: E402
from common.datadog.provisioning import Provisioning, Step  # noqa: E402
from common.errors import FleetgaugeError, RefusedError  # noqa: E402
from common.net.retry import Deadline  # noqa: E402
from common.show.layout import wrap  # noqa: E402
from common.text import visible  # noqa: E402
from fleetgauge.pages.axes import plural  # noqa: E402
from scripts.datadog_documents import all_views, every_metric  # noqa: E402

OK, FAILED, MISCONFIGURED = 0, 1, 2
DONE = {"create": "created", "change": "changed", "finish": "finished", "remove": "removed"}
SAID = {
    "create": "would create",
    "change": "would change",
    "finish": "would finish, as it was cut off",
    "remove": "would remove",
    "keep": "changed by hand, left (--force overwrites it)",
    "leave": "left as it is",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="provision.py", description=__doc__, allow_abbrev=False)
    add = made.add_argument
    add("--push", action="store_true", help="do it; without, only what would be done is said")
    add("--check", action="store_true", help="let Datadog validate the monitors; nothing is written")
    add("--remove", action="store_true", help="take away what this made (with --push)")
    add("--force", action="store_true", help="also what somebody changed by hand")
    add("--notify", action="append", default=[], metavar="@WHO", help="recipient of the monitors")
    add("--config", metavar="FILE", help="TOML file; its table [provision] changes thresholds")
    add("--timeout", type=interval, default=600, metavar="TIME", help="deadline of all of it (default: 10m)")
    return made


class Command:
    """One run, from the settings to what was said."""

    def __init__(self, options: argparse.Namespace, environ: Mapping[str, str]) -> None:
        known = registry.names()
        own = {name: value for name, value in environ.items() if registry.owner(name, known) is None}
        refuse_unknown_variables(own, (CoreSettings, DatadogSettings, ProvisionSettings))
        configuration = Configuration(environ, options.config)
        settings = configuration.table(ProvisionSettings, PROVISION_TABLE)
        core = configuration.core
        place = Place(core.service, (*settings.notify, *options.notify), settings.documents or "")
        found = all_views()
        self.boards = {one.key: dashboard_document(one, place) for views in found for one in views.dashboards}
        changed = settings.changed(one for views in found for one in views.monitors)
        self.monitors = {one.key: monitor_document(one, place) for one in changed}
        keys = configuration.table(ProvisioningKeys, DATADOG_TABLE)
        self.datadog = Provisioning(keys, core, Deadline(options.timeout))
        self.datadog.owner = owner(core.service, core.instance)
        self.options = options
        self.failed = 0

    def run(self) -> int:
        """Do what was asked for; the exit code."""
        if self.options.check:
            self.check()
        else:
            for step in self.steps():
                self.do(step)
            self.metadata()
            if not self.options.push:
                print("This was a dry run: nothing was changed. --push does it.")
        return FAILED if self.failed else OK

    def check(self) -> None:
        """Let Datadog validate every monitor."""
        self.datadog.client.validate()
        for key, document in self.monitors.items():
            try:
                self.datadog.request("POST", f"{MONITOR.path}/validate", document)
                print(f"monitor {key}: valid")
            except RefusedError as refused:
                self.failed += 1
                print(f"monitor {key}: {visible(str(refused))}")

    def steps(self) -> Iterator[Step]:
        """Every dashboard and monitor, with what is to become of it."""
        force = self.options.force
        for kind, wanted in ((DASHBOARD, self.boards), (MONITOR, self.monitors)):
            if self.options.remove:
                yield from self.datadog.removal(kind, force=force)
            else:
                yield from [*self.datadog.plan(kind, wanted, force=force)]

    def do(self, step: Step) -> None:
        """Say it, and do it where that was asked for."""
        name = f"{step.kind.name} {step.key}" + (f" ({step.title})" if step.title else "")
        said = SAID[step.action]
        if self.options.push and step.action in DONE:
            try:
                self.datadog.apply(step)
                said = DONE[step.action]
            except RefusedError as refused:
                self.failed += 1
                said = f"failed: {refused}"
        print(visible(f"{name}: {said}{f'; {step.note}' if step.note else ''}"))
        for line in step.differs:
            print(f"    {visible(line)}")

    def metadata(self) -> None:
        """Unit, description and short name of every metric that there is."""
        left: dict[str, list[str]] = {"absent": [], "leave": [], "foreign": []}
        metrics, watched = [*every_metric()], watcher(sys.stderr)
        for number, metric in enumerate(metrics):
            watched.progress("provision", "asking for metadata", number, len(metrics))
            step = self.datadog.metadata(metric, force=self.options.force, remove=self.options.remove)
            watched.close()
            if step.action in DONE:
                self.do(step)
            else:
                left[step.action].append(metric.name)
        print(f"metadata of {plural(len(left['leave']), 'metric')} left as it is")
        for action, text in (
            ("foreign", "described by somebody else, left (--force overwrites it)"),
            ("absent", "not there yet, skipped until points have come"),
        ):
            if left[action]:
                print(f"metadata of {plural(len(left[action]), 'metric')} {text}:")
                print("\n".join(wrap(left[action], 100, indent=6)))


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Run, and say what went wrong in one line."""
    made = parser()
    options = made.parse_args(arguments)
    if options.check and (options.push or options.remove):
        made.error("--check writes nothing: leave out --push and --remove")
    logs.set_up("provision", verbose=False)
    signals.install()
    signals.advice = "run it again to finish"
    try:
        code = Command(options, environ).run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read the output has had enough
        return 128 + signal.SIGPIPE
    except FleetgaugeError as error:
        print(f"provision.py: {visible(logs.redact(str(error)))}", file=sys.stderr)
        return MISCONFIGURED if error.configuration else FAILED
    finally:
        streams.give_up_unwritten()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
