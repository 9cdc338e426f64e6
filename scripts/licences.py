"""docs/licences.md: the licence of every package that the image holds, as the package itself says."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "locks" / "service.txt"
LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
IDENTIFIER = re.compile(r"MIT|[A-Za-z]+-[\d.]+(-\w+)*|BSD-\d-Clause")  # as SPDX writes them
PAGE = """\
# Licences

What the image holds beside fleetgauge itself, which is under the [MIT licence](../LICENSE): the packages of
`locks/service.txt`, each as it describes itself. Their texts are in the image, in the `.dist-info` folders
under `/opt/venv`. Python and the packages of Debian come with the base image; its `/usr/share/doc` has their
texts, and the image's SBOM lists them ([security](../SECURITY.md)). The probes' wheel holds only
fleetgauge.

| package | version | licence |
| --- | --- | --- |
"""


def licence(about: metadata.PackageMetadata) -> str:
    """An SPDX expression where the package has one, or else what it says in words; never nothing."""
    named = [about[key] for key in ("License-Expression", "License") if key in about]
    written = str(named[0]) if named else ""
    classified = [
        text.rpartition(" :: ")[2]
        for text in about.get_all("Classifier") or []
        if text.startswith("License :: ")
    ]
    if "License-Expression" in about or IDENTIFIER.fullmatch(written) or not classified:
        [first, *_] = written.splitlines() or [""]
        if not first:
            raise SystemExit(f"{about['Name']} names no licence: find out before it is shipped")
        return first
    return ", ".join(classified)


def page() -> str:
    """The page; a package that is not installed as locked is an error, for its licence may be another."""
    rows = []
    for name, version in LOCKED.findall(LOCK.read_text(encoding="utf-8")):
        about = metadata.metadata(name)
        if about["Version"] != version:
            raise SystemExit(
                f"{name} is {about['Version']} here and {version} in {LOCK.name}: run scripts/demo"
            )
        rows.append(f"| {name} | {version} | {licence(about)} |\n")
    return PAGE + "".join(rows)
