"""Make a release of what is committed; `scripts/release` starts it, docs/releasing.md describes it.

The version is declared in `fleetgauge/__init__.py`; everything else is generated from it, and checked.
Nothing is pushed. A dry run does the same in a temporary clone, without running the tests.
"""

from __future__ import annotations

import argparse
import datetime as dt
import email
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Version = tuple[int, int, int]


def run(root: Path, *command: str) -> str:
    """Return what a command of the repository prints; a failure ends the release with its output."""
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout


def parse_version(text: str) -> Version:
    """Return the three numbers of a version."""
    if not re.fullmatch(r"(0|[1-9]\d{0,4})(\.(0|[1-9]\d{0,4})){2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version: three numbers, such as 1.2.3")
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch


def format_version(version: Version) -> str:
    """Return a version as text."""
    return ".".join(map(str, version))


def next_versions(version: Version) -> tuple[Version, ...]:
    """Return the three versions that may follow."""
    major, minor, patch = version
    return (major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)


def sections(changelog: str) -> dict[str, str]:
    """Return the changelog's text by version, newest first; the coming release is `Unreleased`."""
    parts = re.split(r"^## (Unreleased|\d+\.\d+\.\d+)\b.*\n", changelog, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def branch(root: Path) -> str:
    """Return the branch that is checked out, empty where it is a commit."""
    return run(root, "git", "branch", "--show-current").strip()


def problems(root: Path, version: Version) -> Iterator[str]:
    """Yield every reason why this version cannot be released now."""
    name = format_version(version)
    if changed := run(root, "git", "status", "--porcelain"):
        yield f"not everything is committed:\n{changed.rstrip()}"
    if run(root, "git", "tag", "--list", f"v{name}"):
        yield f"there is a tag v{name} already"
    if not branch(root):
        yield "no branch is checked out to push: git switch main"
    changes = sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    first = next(iter(changes), "")
    text = changes.pop(first) if first in {name, "Unreleased"} else ""
    if not re.search(r"^- \S", text, re.MULTILINE):
        yield f"CHANGELOG.md does not begin with lines under `## Unreleased` or `## {name}`"
    last = max((parse_version(found) for found in changes if found != "Unreleased"), default=(0, 0, 0))
    if version not in next_versions(last):
        expected = ", ".join(map(format_version, next_versions(last)))
        yield f"{name} is not next: CHANGELOG.md ends with {format_version(last)}, so use one of {expected}"


def write_version(root: Path, version: Version, today: dt.date) -> None:
    """Write the version and the day of the release, and generate what follows from them."""
    replace(
        root / "fleetgauge/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{format_version(version)}"'
    )
    changelog = root / "CHANGELOG.md"
    first = next(iter(sections(changelog.read_text(encoding="utf-8"))))
    replace(changelog, rf"^## {re.escape(first)}\b.*$", f"## {format_version(version)} ({today})")
    run(root, "scripts/generate")


def replace(path: Path, pattern: str, new: str) -> None:
    """Replace the only line of a file that matches a pattern."""
    text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"{path.name}: {count} lines match {pattern}, expected 1")
    path.write_text(text, encoding="utf-8")


def published_versions(root: Path, wheel: Path, chart: Path) -> Iterator[tuple[str, str]]:
    """Yield the version that each artefact and document names."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        yield "wheel", str(email.message_from_bytes(archive.read(name))["Version"])
    with tarfile.open(chart) as packed:
        file = packed.extractfile("fleetgauge/Chart.yaml")
        text = file.read().decode() if file else ""
    for key in ("version", "appVersion"):
        yield f"chart's {key}", "".join(re.findall(rf"^{key}: (.*)$", text, re.MULTILINE))
    readme = (root / "README.md").read_text(encoding="utf-8")
    yield "README", "".join(re.findall(r"^Version (\S+):", readme, re.MULTILINE))
    yield "CHANGELOG", next(iter(sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))))
    yield "--version, and so the image's label", run(root, "scripts/run_collector.py", "--version").strip()


def build(root: Path, version: Version) -> None:
    """Make wheel and chart in `dist/`; one that names another version is an error."""
    name = format_version(version)
    run(root, "scripts/build", "dist")
    run(root, sys.executable, "scripts/package_chart.py", "dist")
    wheel, chart = root / f"dist/fleetgauge-{name}-py3-none-any.whl", root / f"dist/fleetgauge-{name}.tgz"
    for artefact, found in published_versions(root, wheel, chart):
        print(f"  {found}  {artefact}")
        if found != name:
            raise SystemExit(f"{artefact} names {found or 'no version'}, not {name}")
    for path in sorted((root / "dist").glob(f"fleetgauge-{name}[-.]*")):
        print(f"  dist/{path.name}")


def release(root: Path, version: Version, tested: bool) -> None:
    """Make the release up to the tag; a failure restores the commit it started from."""
    name = format_version(version)
    before = run(root, "git", "rev-parse", "HEAD").strip()
    try:
        write_version(root, version, dt.datetime.now(dt.UTC).date())
        if tested and subprocess.run([root / "scripts/test", "--all"], check=False).returncode:
            raise SystemExit("scripts/test fails: nothing is released")
        build(root, version)
        if run(root, "git", "status", "--porcelain", "--untracked-files=no"):
            run(root, "git", "commit", "--all", "--message", f"Release {name}")
        changes = sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))[name]
        # Verbatim: git would take the headings for comments.
        message = f"fleetgauge {name}\n{changes}"
        run(root, "git", "tag", "--annotate", "--cleanup=verbatim", "--message", message, f"v{name}")
    except BaseException:
        for path in (root / "dist").glob(f"fleetgauge-{name}[-.]*"):
            path.unlink()
        run(root, "git", "reset", "--quiet", "--hard", before)
        raise
    print(run(root, "git", "log", "-1", "--stat", "--format=  %h %s%n").rstrip())


def main(arguments: list[str]) -> int:
    """Return 0 where the release, or its dry run, succeeded."""
    parser = argparse.ArgumentParser(
        prog="scripts/release", description="Make a release of what is committed."
    )
    parser.add_argument("version", type=parse_version, metavar="VERSION", help="three numbers, such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="show all of it in a clone, without the tests")
    options = parser.parse_args(arguments)
    if found := list(problems(ROOT, options.version)):
        print("\n".join(found), file=sys.stderr)
        return 1
    if options.dry_run:
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder, "fleetgauge")
            run(ROOT, "git", "clone", "--quiet", ".", str(clone))
            for key in ("user.name", "user.email"):  # a clone has none of its own, and needs one to commit
                run(clone, "git", "config", key, "dry-run")
            (clone / ".venv").symlink_to(ROOT / ".venv")
            release(clone, options.version, tested=False)
        print("Dry run in a temporary clone, without scripts/test. The release itself would end with:")
    else:
        release(ROOT, options.version, tested=True)
    print("Push it, and the workflows do the rest:")
    print(f"  git push --atomic origin {branch(ROOT)} v{format_version(options.version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
