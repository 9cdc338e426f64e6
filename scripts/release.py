"""Make a release of what is committed: started by `scripts/release`, told about in docs/releasing.md.

The version is written in one place, `fleetgauge/__init__.py`; the rest is made from it, and read back.
Nothing is pushed. A dry run does all of it in a clone that is thrown away, except for running the tests.
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
    """What a command of the repository prints; a failure ends the release with what it said."""
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)}: {(ran.stderr or ran.stdout).strip()}")
    return ran.stdout


def parsed(text: str) -> Version:
    """The three numbers of a version."""
    if not re.fullmatch(r"(0|[1-9]\d{0,4})(\.(0|[1-9]\d{0,4})){2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a version: three numbers, such as 1.2.3")
    major, minor, patch = map(int, text.split("."))
    return major, minor, patch


def written(version: Version) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))


def following(version: Version) -> tuple[Version, ...]:
    """The three versions that may come next."""
    major, minor, patch = version
    return (major, minor, patch + 1), (major, minor + 1, 0), (major + 1, 0, 0)


def sections(changelog: str) -> dict[str, str]:
    """What the changelog says of each version, newest first; what is to be released is `Unreleased`."""
    parts = re.split(r"^## (Unreleased|\d+\.\d+\.\d+)\b.*\n", changelog, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def branch(root: Path) -> str:
    """What is checked out, or nothing where that is a commit."""
    return run(root, "git", "branch", "--show-current").strip()


def problems(root: Path, version: Version) -> Iterator[str]:
    """Why this cannot be released now, all of it."""
    name = written(version)
    if changed := run(root, "git", "status", "--porcelain"):
        yield f"not everything is committed:\n{changed.rstrip()}"
    if run(root, "git", "tag", "--list", f"v{name}"):
        yield f"there is a tag v{name} already"
    if not branch(root):
        yield "no branch is checked out to push: git switch main"
    told = sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    first = next(iter(told), "")
    text = told.pop(first) if first in {name, "Unreleased"} else ""
    if not re.search(r"^- \S", text, re.MULTILINE):
        yield f"CHANGELOG.md does not begin with lines under `## Unreleased` or `## {name}`"
    last = max((parsed(one) for one in told if one != "Unreleased"), default=(0, 0, 0))
    if version not in following(last):
        wanted = ", ".join(map(written, following(last)))
        yield f"{name} is not next: the last in CHANGELOG.md is {written(last)}, so it is one of {wanted}"


def write(root: Path, version: Version, today: dt.date) -> None:
    """Put the version into its one place and the day into the changelog, and make the rest from that."""
    replace(root / "fleetgauge/__init__.py", r'^__version__ = ".*"$', f'__version__ = "{written(version)}"')
    changelog = root / "CHANGELOG.md"
    first = next(iter(sections(changelog.read_text(encoding="utf-8"))))
    replace(changelog, rf"^## {re.escape(first)}\b.*$", f"## {written(version)} ({today})")
    run(root, "scripts/generate")


def replace(path: Path, pattern: str, new: str) -> None:
    """Change the one line of a file that looks like this."""
    text, count = re.subn(pattern, new, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    if count != 1:
        raise SystemExit(f"{path.name}: {count} lines look like {pattern}, not one")
    path.write_text(text, encoding="utf-8")


def said(root: Path, wheel: Path, chart: Path) -> Iterator[tuple[str, str]]:
    """What each thing that users see says its version is."""
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
    """Make wheel and chart in `dist/`; one that says another version is an error."""
    name = written(version)
    run(root, "scripts/build", "dist")
    run(root, sys.executable, "scripts/package_chart.py", "dist")
    wheel, chart = root / f"dist/fleetgauge-{name}-py3-none-any.whl", root / f"dist/fleetgauge-{name}.tgz"
    for thing, found in said(root, wheel, chart):
        print(f"  {found}  {thing}")
        if found != name:
            raise SystemExit(f"{thing} says {found or 'no version'}, not {name}")
    for path in sorted((root / "dist").glob(f"fleetgauge-{name}[-.]*")):
        print(f"  dist/{path.name}")


def release(root: Path, version: Version, tested: bool) -> None:
    """Everything up to the tag; where something fails, all is as it was committed before."""
    name = written(version)
    before = run(root, "git", "rev-parse", "HEAD").strip()
    try:
        write(root, version, dt.datetime.now(dt.UTC).date())
        if tested and subprocess.run([root / "scripts/test", "--all"], check=False).returncode:
            raise SystemExit("scripts/test fails: nothing is released")
        build(root, version)
        if run(root, "git", "status", "--porcelain", "--untracked-files=no"):
            run(root, "git", "commit", "--all", "--message", f"Release {name}")
        told = sections((root / "CHANGELOG.md").read_text(encoding="utf-8"))[name]
        # Verbatim: git would take the headings for comments.
        message = f"fleetgauge {name}\n{told}"
        run(root, "git", "tag", "--annotate", "--cleanup=verbatim", "--message", message, f"v{name}")
    except BaseException:
        for path in (root / "dist").glob(f"fleetgauge-{name}[-.]*"):
            path.unlink()
        run(root, "git", "reset", "--quiet", "--hard", before)
        raise
    print(run(root, "git", "log", "-1", "--stat", "--format=  %h %s%n").rstrip())


def main(arguments: list[str]) -> int:
    """0 when all of it is done, or in a dry run could be."""
    parser = argparse.ArgumentParser(
        prog="scripts/release", description="Make a release of what is committed."
    )
    parser.add_argument("version", type=parsed, metavar="VERSION", help="three numbers, such as 1.2.3")
    parser.add_argument("--dry-run", action="store_true", help="show all of it in a clone, without the tests")
    chosen = parser.parse_args(arguments)
    if found := list(problems(ROOT, chosen.version)):
        print("\n".join(found), file=sys.stderr)
        return 1
    if chosen.dry_run:
        with tempfile.TemporaryDirectory() as place:
            clone = Path(place, "fleetgauge")
            run(ROOT, "git", "clone", "--quiet", ".", str(clone))
            for key in ("user.name", "user.email"):  # a clone has none of its own, and needs one to commit
                run(clone, "git", "config", key, "dry-run")
            (clone / ".venv").symlink_to(ROOT / ".venv")
            release(clone, chosen.version, tested=False)
        print(
            "Dry run, in a clone that is gone: scripts/test was not run. The release itself would end with:"
        )
    else:
        release(ROOT, chosen.version, tested=True)
    print("Push it, and the workflows do the rest:")
    print(f"  git push --atomic origin {branch(ROOT)} v{written(chosen.version)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
