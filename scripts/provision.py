#!/usr/bin/env python3
"""Create, update and remove fleetgauge's dashboards, monitors and metric metadata in Datadog.

A dry run by default: it shows what differs and changes nothing. `--push` writes. See docs/dashboards.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN = f"{ROOT}/.venv/bin/python"

# The project's own Python, whichever python3 was called; see run_collector.py.
is_own = sys.executable == OWN or sys.prefix == f"{ROOT}/.venv" or "own" in sys._xoptions
if __name__ == "__main__" and not is_own and os.access(OWN, os.X_OK):
    os.execv(OWN, [OWN, "-X", "own", *sys.argv])  # noqa: S606
sys.path[0] = str(ROOT)

try:
    from common import logs, registry, signals
    from common.cli.arguments import interval
    from common.config.sources import Configuration
    from common.datadog.client import DatadogClient
    from common.datadog.diff import show
    from common.datadog.documents import (
        DocumentTarget,
        dashboard_document,
        metadata_document,
        monitor_document,
    )
    from common.datadog.provision_settings import ProvisionSettings
    from common.datadog.provisioning import DASHBOARD, MONITOR, PERMISSIONS, Provisioner, Step, instance_name
    from common.errors import ConfigurationError, DeliveryError, FleetgaugeError
    from common.net.retry import Deadline
    from common.text import visible
    from scripts.datadog_documents import all_views, every_metric
except ModuleNotFoundError as error:
    sys.exit(f"provision.py: this Python lacks {error.name}: run {ROOT / 'scripts' / 'setup'} once")

OK, FAILED, MISCONFIGURED = 0, 1, 2
DONE = {"create": "created", "update": "updated", "remove": "removed", "overwrite": "overwritten"}
SUMMARY = (*DONE, "edited", "left", "unchanged", "failed")
Confirm = Callable[[str], bool]


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    result = argparse.ArgumentParser(
        prog="provision.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = result.add_argument
    add("--push", action="store_true", help="apply; default is a dry run")
    add("--check", action="store_true", help="validate the monitors with Datadog; change nothing")
    add("--remove", action="store_true", help="delete the documents that nobody edited")
    add("--overwrite-edited", action="store_true", help="also update what a person edited")
    add("--yes", action="store_true", help="do not ask for confirmation; skip edited documents")
    add("--notify", action="append", default=[], metavar="@HANDLE", help="recipient of the monitors")
    add("--config", metavar="FILE", help="TOML file; its table [provision] changes thresholds")
    add("--timeout", type=interval, default="10m", metavar="TIME", help="deadline (default: 10m)")
    return result


class Run:
    """One run of the command; `confirm` asks the person at the terminal, None where there is none."""

    def __init__(
        self, options: argparse.Namespace, environ: Mapping[str, str], confirm: Confirm | None
    ) -> None:
        configuration = Configuration(environ, options.config)
        settings = configuration.table(ProvisionSettings, registry.PROVISION)
        core = configuration.core
        wandb = environ.get("WANDB_BASE_URL", "").strip() or "https://wandb.ai"
        target = DocumentTarget(
            core.service,
            (*settings.notify, *options.notify),
            settings.documents or "",
            wandb.rstrip("/").replace("://api.wandb.ai", "://wandb.ai"),
        )
        views = all_views()
        dashboards = [dashboard for view in views for dashboard in view.dashboards]
        monitors = settings.changed(monitor for one in views for monitor in one.monitors)
        self.documents = {
            DASHBOARD: {one.key: dashboard_document(one, target) for one in dashboards},
            MONITOR: {monitor.key: monitor_document(monitor, target) for monitor in monitors},
        }
        keys = configuration.datadog
        client = DatadogClient(keys, core, Deadline(options.timeout), permissions=PERMISSIONS)
        self.datadog = Provisioner(client, instance_name(core.service, core.instance))
        self.options = options
        self.confirm = confirm
        self.counts: Counter[str] = Counter()

    def run(self) -> int:
        """Do what the options say, print it, and return the exit code."""
        if self.options.check:
            self.validate()
        elif self.options.remove:
            self.remove([*self.steps()])
        else:
            self.provision([*self.steps()])
        return FAILED if self.counts["failed"] else OK

    def validate(self) -> None:
        """Let Datadog validate every monitor."""
        for key, document in self.documents[MONITOR].items():
            try:
                self.datadog.validate(document)
                print_line(f"monitor {key}: valid")
            except DeliveryError as error:
                raise_if_key_is_refused(error)
                self.fail(f"monitor {key}", error)

    def steps(self) -> Iterator[Step]:
        """Yield the steps of all dashboards and monitors."""
        for kind, declared in self.documents.items():
            for step in self.datadog.plan(kind, {} if self.options.remove else declared):
                if step.action == "failed":
                    self.fail(f"{step.kind} {step.document}", step.reason)
                else:
                    yield step

    def provision(self, steps: list[Step]) -> None:
        """Create and update; then ask about documents that were edited or are no longer needed."""
        for step in steps:
            if step.action in {"create", "update"}:
                self.apply(step)
        for step in steps:
            if step.action == "remove":
                self.offer_removal(step)
            elif step.action == "edited":
                self.decide_edited(step)
            else:
                self.counts["unchanged"] += step.action == "unchanged"
        self.summarise(self.metadata())

    def remove(self, steps: list[Step]) -> None:
        """List what is to be removed, confirm, and remove it."""
        steps = [step._replace(reason="") for step in steps]
        removed = [step for step in steps if step.action == "remove"]
        for step in steps:
            report(step, "remove" if step in removed else "edited since the last push, left")
        self.counts["edited"] = len(steps) - len(removed)
        if not self.options.push:
            self.counts["remove"] = len(removed)
        elif removed and not self.options.yes and self.confirm is None:
            raise ConfigurationError("there is no terminal to ask at: add --yes to remove what is listed")
        elif self.agreed(f"Remove {len(removed)} documents?"):
            for step in removed:
                self.apply(step)
        else:
            self.counts["left"] = len(removed)
        self.summarise("")

    def agreed(self, question: str) -> bool:
        """Return whether `--yes` was given or the person at the terminal agrees."""
        return self.options.yes or (self.confirm is not None and self.confirm(question))

    def offer_removal(self, step: Step) -> None:
        """Remove a document that is no longer needed, if that is agreed to."""
        if self.options.push and self.agreed(f"Remove {step.title} ({step.reason})?"):
            self.apply(step)
        else:
            self.counts["left" if self.options.push else "remove"] += 1
            report(step, "left (--yes removes it)" if self.options.push else "remove")

    def decide_edited(self, step: Step) -> None:
        """Show the changes to a document that somebody edited, and overwrite it if that is agreed to."""
        if step.declared and self.options.overwrite_edited:
            self.apply(step)
            return
        hint = " (--overwrite-edited updates it)" if step.declared else ""
        report(step, f"edited since the last push, left{hint}")
        self.counts["edited"] += 1
        if not step.declared or not self.options.push or self.options.yes:
            return
        if self.confirm is None:
            self.counts["failed"] += 1
            print_line("    there is no terminal to ask at: --yes leaves it and exits with 0")
        elif self.confirm(f"Overwrite {step.title}?"):
            self.counts["edited"] -= 1
            self.apply(step._replace(changes=()))

    def apply(self, step: Step) -> None:
        """Do a step, in a dry run only show it; a document that is refused costs itself."""
        action = "overwrite" if step.action == "edited" else step.action
        if not self.options.push:
            report(step, action)
            self.counts[action] += 1
            return
        try:
            done = self.datadog.apply(step, overwrite=action == "overwrite")
        except DeliveryError as error:
            self.fail(f"{step.kind} {step.document} ({step.title})", error)
            return
        self.counts[action if done else "failed"] += 1
        report(step, DONE[action] if done else "changed since it was read, left: run this again")

    def fail(self, what: str, error: DeliveryError | str) -> None:
        """Report a document that was refused or lost; the others go on, and the exit code is 1."""
        self.counts["failed"] += 1
        print_line(f"{what}: failed: {error}")

    def metadata(self) -> str:
        """Fill in the metadata of the metrics that Datadog knows; return a summary.

        A field with another value is left unless --overwrite-edited: people edit metadata in Datadog as well.
        """
        counts: Counter[str] = Counter()
        for metric in every_metric():
            found = self.datadog.metadata(metric.name)
            if found is None:
                counts["unknown"] += 1
                continue
            different = {k: new for k, new in metadata_document(metric).items() if found.get(k) != new}
            fields = {
                k: new for k, new in different.items() if self.options.overwrite_edited or not found.get(k)
            }
            counts["written"] += bool(fields)
            counts["left"] += len(fields) < len(different)
            try:
                if fields and self.options.push:
                    self.datadog.write_metadata(metric.name, fields)
            except DeliveryError as error:
                raise_if_key_is_refused(error)
                self.fail(f"metadata {metric.name}", error)
        left = f", {counts['left']} differ and are left (--overwrite-edited)" if counts["left"] else ""
        unknown = f", {counts['unknown']} metrics not sent yet" if counts["unknown"] else ""
        return f"; metadata of {counts['written']} metrics{left}{unknown}"

    def summarise(self, metadata: str) -> None:
        """Print one line with the number of documents by action."""
        done = "pushed" if self.options.push else "dry run, nothing changed (--push writes)"
        words = DONE if self.options.push else {}
        parts = [f"{self.counts[key]} {words.get(key, key)}" for key in SUMMARY if self.counts[key]]
        print_line(f"{done}: {', '.join(parts) or 'nothing to do'}{metadata}")


def raise_if_key_is_refused(error: DeliveryError) -> None:
    """Raise where Datadog refuses the key for what no single document can restrict: all would be refused."""
    if getattr(error, "status", None) in {401, 403}:
        raise error


def report(step: Step, text: str) -> None:
    """Print one step with its changes."""
    reason = f" ({step.reason})" if step.reason else ""
    print_line(f"{step.kind} {step.document} ({step.title}): {text}{reason}")
    for line in show([*step.changes]):
        print_line(f"    {line}")


def print_line(text: str) -> None:
    """Print a line; titles and answers are other people's text."""
    print(visible(logs.redact(text)), flush=True)


def prompt() -> Confirm | None:
    """Return a function that asks the person at the terminal; None where there is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None

    def confirm(question: str) -> bool:
        print(f"{visible(question)} [y/N] ", end="", flush=True)
        return sys.stdin.readline().strip().lower() in {"y", "yes"}  # the end of the input is a no

    return confirm


def main(
    arguments: list[str], environ: Mapping[str, str] = os.environ, confirm: Confirm | None = None
) -> int:
    """Run the command and return its exit code; errors are one line on standard error."""
    grammar = parser()
    options = grammar.parse_args(arguments)
    if options.check and (options.push or options.remove):
        grammar.error("--check writes nothing: leave out --push and --remove")
    logs.set_up("provision", verbose=False)
    try:
        return Run(options, environ, confirm).run()
    except FleetgaugeError as error:
        print(f"provision.py: {visible(logs.redact(str(error)))}", file=sys.stderr)
        return MISCONFIGURED if error.configuration else FAILED
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


if __name__ == "__main__":
    signals.install()
    signals.advice = "run it again to continue"
    sys.exit(main(sys.argv[1:], confirm=prompt()))
