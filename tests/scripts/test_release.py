"""A release, made in a clone: what it refuses, what it makes, and that all of it says one version."""

from __future__ import annotations

import re
import shlex

import pytest

from support.checkout import Checkout
from support.rendering import needs_helm

pytestmark = pytest.mark.slow

LATER = "7.0.0"  # whatever version is in the repository, this may be next
IDENTITY = "git config user.name Test && git config user.email test@example.com"
LIST = "git log --oneline; git tag; git status --short; ls dist 2>/dev/null"
NOT_NEXT = " 6.5.5, 6.6.0, 7.0.0\n"  # what may follow 6.5.4
CHANGELOG = "# Changelog\n\n## Unreleased\n### Added\n- this\n\n## 6.5.4\n- that\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A repository of what is here, whose tests pass at once and whose last version is before `LATER`."""
    copy = Checkout(tmp_path_factory.mktemp("release") / "clone")
    (copy.root / "scripts" / "test").write_text("#!/bin/sh\nexit 0\n")
    (copy.root / "CHANGELOG.md").write_text(CHANGELOG)
    began = copy.run(
        f"git init -q -b main && {IDENTITY} && git add -A && git commit -qm Begin && git tag begin"
    )
    assert began.returncode == 0, began.stderr
    return copy


@pytest.fixture
def clone(repository: Checkout) -> Checkout:
    """The repository as it began, with one tag."""
    again = "git switch -q -C main begin && git reset -q --hard && git clean -qfdx -e .venv"
    ran = repository.run(f"{again} && git tag -l 'v*' | xargs -r git tag -d && rm -f .git/hooks/pre-commit")
    assert ran.returncode == 0, ran.stderr
    return repository


def commit(clone: Checkout, name: str, text: str) -> None:
    (clone.root / name).write_text(text)
    assert clone.run("git commit -qam Change").returncode == 0


def refusal(clone: Checkout, version: str = LATER) -> str:
    """What a release says that makes nothing and leaves all as it was."""
    before = clone.run(LIST).stdout
    ran = clone.run(f"scripts/release {shlex.quote(version)}")
    assert ran.returncode in {1, 2}
    assert clone.run(LIST).stdout == before
    return ran.stderr


@needs_helm
def test_a_dry_run_shows_one_version_everywhere_and_leaves_nothing(clone: Checkout) -> None:
    commit(clone, "CHANGELOG.md", CHANGELOG.replace("Unreleased", LATER))  # or written already
    before = clone.run(LIST).stdout
    ran = clone.run(f"scripts/release --dry-run {LATER}")
    assert ran.returncode == 0, ran.stderr
    shown = re.findall(r"^  (\d+\.\d+\.\d+)  (.*)$", ran.stdout, re.MULTILINE)
    assert {version for version, _ in shown} == {LATER}
    assert len(shown) == 6
    for made in (f"{LATER}-py3-none-any.whl", f"{LATER}.tar.gz", f"{LATER}.tgz"):
        assert f"  dist/fleetgauge-{made}\n" in ran.stdout
    assert ran.stdout.endswith(f"  git push --atomic origin main v{LATER}\n")
    assert clone.run(LIST).stdout == before


@needs_helm
def test_a_release_is_a_commit_a_tag_with_its_notes_and_what_users_install(clone: Checkout) -> None:
    ran = clone.run(f"scripts/release {LATER}")
    assert ran.returncode == 0, ran.stderr
    assert clone.run("git log --format=%s").stdout == f"Release {LATER}\nBegin\n"
    assert clone.run("git status --short").stdout == ""
    [heading] = re.findall(r"^## 7.*", (clone.root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert re.fullmatch(rf"## {LATER} \(\d{{4}}-\d\d-\d\d\)", heading)
    tag = clone.run(f"git cat-file -p v{LATER}").stdout
    assert tag.startswith("object ")
    assert tag.endswith(f"\n\nfleetgauge {LATER}\n### Added\n- this\n\n")
    assert (clone.root / f"dist/fleetgauge-{LATER}-py3-none-any.whl").exists()
    assert (clone.root / f"dist/fleetgauge-{LATER}.tgz").exists()
    assert "is not next" in clone.run("scripts/release --dry-run 6.5.5").stderr
    assert f"there is a tag v{LATER} already" in refusal(clone)


@needs_helm
@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("scripts/test", "#!/bin/sh\nexit 3\n", "scripts/test fails: nothing is released"),
        ("README.md", "a README without a version\n", "README.md: write"),
        ("scripts/build", "#!/bin/sh\necho no wheel >&2\nexit 1\n", "scripts/build dist: no wheel"),
        (".git/hooks/pre-commit", "#!/bin/sh\necho not today >&2\nexit 1\n", "not today"),
    ],
    ids=["tests", "generate", "build", "hook"],
)
def test_where_something_fails_all_is_as_before(clone: Checkout, name: str, text: str, reason: str) -> None:
    if name.startswith(".git"):
        (clone.root / name).write_text(text)
        (clone.root / name).chmod(0o755)
    else:
        commit(clone, name, text)
    (clone.root / "dist").mkdir()
    (clone.root / "dist" / "fleetgauge-6.5.4.tgz").write_text("the last one")
    assert reason in refusal(clone)


def test_what_is_not_committed_or_on_no_branch_is_refused(clone: Checkout) -> None:
    (clone.root / "new.py").write_text("")
    (clone.root / "README.md").unlink()
    assert refusal(clone) == "not everything is committed:\n D README.md\n?? new.py\n"
    assert clone.run("git reset -q --hard && git clean -qfd && git checkout -q --detach").returncode == 0
    assert refusal(clone) == "no branch is checked out to push: git switch main\n"


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        *((version, NOT_NEXT) for version in ("6.5.4", "6.5.6", "6.7.0", "8.0.0", "7.0.1")),
        *((version, "is not a version") for version in ("7", "v7.0.0", "07.0.0", "7.0.0\n")),
        ("--", "required: VERSION"),
    ],
)
def test_what_is_not_the_next_version_is_refused(clone: Checkout, version: str, reason: str) -> None:
    assert reason in refusal(clone, version)


def test_a_changelog_that_says_nothing_is_refused(clone: Checkout) -> None:
    old = "## 6.5.4\n- that\n"
    for begin in ("", *("## Unreleased\n" + text for text in ("", "### Added\n\n", "no line of a list\n"))):
        commit(clone, "CHANGELOG.md", f"# Changelog\n\n{begin}{old}")
        assert refusal(clone) == (
            f"CHANGELOG.md does not begin with lines under `## Unreleased` or `## {LATER}`\n"
        )
