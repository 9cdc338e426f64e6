#!/usr/bin/env python3
"""Bring dashboards, monitors and metadata in Datadog to what is declared: a dry run without `--push`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

from common import logs  # noqa: E402
from common.config.configuration import Configuration  # noqa: E402
from common.config.file import DATADOG_TABLE, PROVISION_TABLE  # noqa: E402
from common.datadog.documents import Document, Place, dashboard_document, monitor_document  # noqa: E402
from common.datadog.marks import DASHBOARD, MONITOR, owner  # noqa: E402
from common.datadog.provision_settings import ProvisioningKeys, ProvisionSettings  # noqa: E402
from common.datadog.provisioning import Provisioning, Step  # noqa: E402
from common.errors import FleetgaugeError, Interrupted, RefusedError  # noqa: E402
from common.net.retry import Deadline  # noqa: E402
from common.signals import interruptible  # noqa: E402
from common.text import visible  # noqa: E402
from scripts.datadog_documents import every_look, every_metric  # noqa: E402

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
    made = argparse.ArgumentParser(prog="provision.py", description=__doc__)
    made.add_argument("--push", action="store_true", help="do it; without, only what would be done is said")
    made.add_argument(
        "--check", action="store_true", help="let Datadog validate the monitors; nothing is written"
    )
    made.add_argument("--remove", action="store_true", help="take away what this made (with --push)")
    made.add_argument("--force", action="store_true", help="also what somebody changed by hand")
    made.add_argument(
        "--notify", action="append", default=[], metavar="@WHO", help="recipient of the monitors"
    )
    made.add_argument("--config", metavar="FILE", help="TOML file; its table [provision] changes thresholds")
    made.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS", help="for all of it (600)")
    return made


class Command:
    """One run, from the settings to what was said."""

    def __init__(self, options: argparse.Namespace) -> None:
        configuration = Configuration(os.environ, options.config)
        settings = configuration.table(ProvisionSettings, PROVISION_TABLE)
        core = configuration.core
        place = Place(core.service, (*settings.notify, *options.notify), settings.documents or "")
        looked = every_look()
        self.boards = {one.key: dashboard_document(one, place) for look in looked for one in look.dashboards}
        changed = settings.changed(one for look in looked for one in look.monitors)
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
        for key, document in self.monitors.items():
            try:
                self.datadog.validate_monitor(document)
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
        name = f"{step.kind.name} {step.key} ({visible(step.title)})"
        said = SAID[step.action]
        if self.options.push and step.action in DONE:
            try:
                self.datadog.apply(step)
                said = DONE[step.action]
            except RefusedError as refused:
                self.failed += 1
                said = f"failed: {visible(str(refused))}"
        print(f"{name}: {said}{f'; {step.note}' if step.note else ''}")
        for line in step.differs:
            print(f"    {visible(line)}")

    def metadata(self) -> None:
        """Unit, description and short name of every metric that there is."""
        found: dict[str, list[str]] = {"absent": [], "leave": [], "foreign": [], "change": []}
        for metric in every_metric():
            action, wanted = self.datadog.metadata(metric, force=self.options.force)
            if self.options.remove:
                action, wanted = self.emptied(action, wanted)
            found[action].append(metric.name)
            if action == "change" and self.options.push:
                self.datadog.write_metadata(metric.name, wanted)
        done = "written" if self.options.push else "would be written"
        print(f"metadata: {len(found['change'])} {done}, {len(found['leave'])} left as they are")
        for action, text in (
            ("foreign", "described by somebody else, left (--force overwrites them)"),
            ("absent", "not there yet, skipped until points of them have come"),
        ):
            if found[action]:
                print(f"metadata of {len(found[action])} metrics {text}: {', '.join(found[action])}")

    @staticmethod
    def emptied(action: str, wanted: Document) -> tuple[str, Document]:
        """To take away: what is ours loses its words; its unit is true, and stays."""
        return ("change" if action == "leave" else action), {**wanted, "description": "", "short_name": ""}


def main(arguments: list[str]) -> int:
    """Run, and say what went wrong in one line."""
    options = parser().parse_args(arguments)
    logs.set_up("provision", verbose=False)
    try:
        with interruptible():
            return Command(options).run()
    except Interrupted as error:
        print(f"provision.py: {error}; run it again to finish", file=sys.stderr)
        return 128 + error.signal_number
    except FleetgaugeError as error:
        print(f"provision.py: {visible(logs.redact(str(error)))}", file=sys.stderr)
        return MISCONFIGURED if error.configuration else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
