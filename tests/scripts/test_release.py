"""A release, made in a clone: what it refuses, what it makes, and that all of it says one version."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scripts import release
from support.checkout import Checkout
from support.rendering import needs_helm

pytestmark = pytest.mark.slow

LATER = "7.0.0"  # whatever version is in the repository, this may be next
IDENTITY = "git config user.name Test && git config user.email test@example.com"
LIST = "git log --oneline; git tag; git status --short; ls dist 2>/dev/null"
HOME = "https://example.com/acme/gauge"
NUMBERS = st.integers(0, 99999)


@pytest.fixture
def clone(tmp_path: Path) -> Checkout:
    """A repository of what is here, whose tests pass at once and whose last version is before `LATER`."""
    copy = Checkout(tmp_path / "clone")
    (copy.root / "scripts" / "test").write_text("#!/bin/sh\nexit 0\n")
    (copy.root / "CHANGELOG.md").write_text(
        "# Changelog\n\n## Unreleased\n### Added\n- this\n\n## 6.5.4\n- that\n"
    )
    assert (
        copy.run(f"git init -q -b main && {IDENTITY} && git add -A && git commit -qm Begin").returncode == 0
    )
    return copy


def commit(clone: Checkout, name: str, text: str) -> None:
    (clone.root / name).write_text(text)
    assert clone.run("git commit -qam Change").returncode == 0


@needs_helm
def test_a_dry_run_shows_one_version_everywhere_and_leaves_nothing(clone: Checkout) -> None:
    before = clone.run(LIST).stdout
    ran = clone.run(f"scripts/release --dry-run {LATER}")
    assert ran.returncode == 0, ran.stderr
    shown = re.findall(r"^  (\d+\.\d+\.\d+)  (.*)$", ran.stdout, re.MULTILINE)
    places = ["wheel", "chart's version", "chart's appVersion", "README", "CHANGELOG"]
    assert shown == [(LATER, place) for place in [*places, "--version, and so the image's label"]]
    for made in (f"{LATER}-py3-none-any.whl", f"{LATER}.tar.gz", f"{LATER}.tgz"):
        assert f"  dist/fleetgauge-{made}\n" in ran.stdout
    assert f"Release {LATER}" in ran.stdout
    assert ran.stdout.endswith(f"  git push --atomic origin main v{LATER}\n")
    assert clone.run(LIST).stdout == before


@needs_helm
def test_a_release_is_a_commit_a_tag_with_its_notes_and_what_users_install(clone: Checkout) -> None:
    assert clone.run("git remote add origin git@example.com:acme/gauge.git").returncode == 0
    ran = clone.run(f"scripts/release {LATER}")
    assert ran.returncode == 0, ran.stderr
    assert clone.run("git log --format=%s").stdout == f"Release {LATER}\nBegin\n"
    assert clone.run("git status --short").stdout == ""
    [heading] = re.findall(r"^## 7.*", (clone.root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert re.fullmatch(rf"## {LATER} \(\d{{4}}-\d\d-\d\d\)", heading)
    tag = clone.run(f"git cat-file -p v{LATER}").stdout
    assert tag.startswith("object ")
    assert tag.endswith(f"\n\nfleetgauge {LATER}\n### Added\n- this\n\n")
    with zipfile.ZipFile(clone.root / f"dist/fleetgauge-{LATER}-py3-none-any.whl") as wheel:
        metadata = message_from_bytes(wheel.read(f"fleetgauge-{LATER}.dist-info/METADATA"))
        assert (metadata["Version"], metadata["Metadata-Version"]) == (LATER, "2.3")
    with tarfile.open(clone.root / f"dist/fleetgauge-{LATER}.tgz") as chart:
        file = chart.extractfile("fleetgauge/Chart.yaml")
        assert file is not None
        said = yaml.safe_load(file)
    assert (said["version"], said["appVersion"]) == (LATER, LATER)
    assert (said["home"], said["sources"]) == (HOME, [HOME])
    assert "is not next" in clone.run("scripts/release --dry-run 6.5.5").stderr
    assert f"there is a tag v{LATER} already" in clone.run(f"scripts/release {LATER}").stderr


@needs_helm
def test_a_version_that_was_prepared_by_hand_is_released_as_it_is(clone: Checkout) -> None:
    told = (clone.root / "CHANGELOG.md").read_text().replace("Unreleased", "6.5.5")
    commit(clone, "CHANGELOG.md", told)
    ran = clone.run("scripts/release --dry-run 6.5.5")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("scripts/test", "#!/bin/sh\nexit 3\n", "scripts/test fails: nothing is released"),
        ("README.md", "a README without a version\n", "README.md: write"),
        ("scripts/build", "#!/bin/sh\necho no wheel >&2\nexit 1\n", "scripts/build dist: no wheel"),
    ],
    ids=["tests", "generate", "build"],
)
def test_where_something_fails_all_is_as_before(clone: Checkout, name: str, text: str, reason: str) -> None:
    commit(clone, name, text)
    before = clone.run(LIST).stdout
    ran = clone.run(f"scripts/release {LATER}")
    assert ran.returncode == 1
    assert reason in ran.stderr
    assert clone.run(LIST).stdout == before


@needs_helm
def test_a_commit_that_a_hook_refuses_leaves_nothing_in_dist(clone: Checkout) -> None:
    hook = clone.root / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    (clone.root / "dist").mkdir()
    (clone.root / "dist" / "fleetgauge-6.5.4.tgz").write_text("the last one")
    before = clone.run(LIST).stdout
    ran = clone.run(f"scripts/release {LATER}")
    assert ran.returncode == 1
    assert "not today" in ran.stderr
    assert clone.run(LIST).stdout == before


def refusal(clone: Checkout, version: str) -> str:
    ran = clone.run(f"scripts/release {version}")
    assert ran.returncode in {1, 2}
    assert clone.run("git tag").stdout == ""
    return ran.stderr


def test_what_is_not_committed_is_refused(clone: Checkout) -> None:
    (clone.root / "new.py").write_text("")
    (clone.root / "README.md").unlink()
    assert refusal(clone, LATER) == "not everything is committed:\n D README.md\n?? new.py\n"


def test_a_commit_without_a_branch_is_refused(clone: Checkout) -> None:
    assert clone.run("git checkout -q --detach").returncode == 0
    assert refusal(clone, LATER) == "no branch is checked out to push: git switch main\n"


@pytest.mark.parametrize("version", ["6.5.4", "6.5.6", "6.7.0", "8.0.0", "7.0.1", "0.1.0"])
def test_a_version_that_is_not_next_is_refused(clone: Checkout, version: str) -> None:
    said = f"{version} is not next: the last in CHANGELOG.md is 6.5.4, so it is one of 6.5.5, 6.6.0, 7.0.0\n"
    assert refusal(clone, version) == said


@pytest.mark.parametrize("version", ["7", "v7.0.0", "7.0.0rc1", "07.0.0", "7.0.0\n", "$(id)", "--", "7.0.٣"])
def test_what_is_no_version_is_refused(clone: Checkout, version: str) -> None:
    ran = subprocess.run(
        [sys.executable, clone.root / "scripts" / "release.py", version],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "is not a version" in ran.stderr or "required: VERSION" in ran.stderr


@pytest.mark.parametrize("section", ["", "### Added\n\n", "words, but no line of a list\n"])
def test_a_changelog_that_says_nothing_is_refused(clone: Checkout, section: str) -> None:
    commit(clone, "CHANGELOG.md", f"# Changelog\n\n## Unreleased\n{section}\n## 6.5.4\n- that\n")
    said = f"CHANGELOG.md does not begin with lines under `## Unreleased` or `## {LATER}`\n"
    assert refusal(clone, LATER) == said
    commit(clone, "CHANGELOG.md", "# Changelog\n\n## 6.5.4\n- that\n")
    assert refusal(clone, LATER) == said


@pytest.mark.parametrize(
    ("remote", "home"),
    [
        ("https://example.com/acme/gauge.git", HOME),
        ("https://example.com/acme/gauge/", HOME),
        ("https://someone:token@example.com/acme/gauge", HOME),
        ("git@example.com:acme/gauge.git", HOME),
        ("ssh://git@example.com/acme/gauge.git", HOME),
        ("/srv/git/gauge", ""),
        ("../gauge.git", ""),
        ("file:///srv/git/gauge", ""),
        ("", ""),
    ],
)
def test_the_home_of_the_chart_is_where_origin_is_hosted(remote: str, home: str) -> None:
    assert release.home(remote) == home


@given(NUMBERS, NUMBERS, NUMBERS)
def test_each_next_version_is_later_and_reads_back_as_itself(major: int, minor: int, patch: int) -> None:
    version = (major, minor, patch)
    assert release.parsed(release.written(version)) == version
    assert all(later > version for later in release.following(version))
