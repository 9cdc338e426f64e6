"""What the written documents hold (pages, links, commands, words in code)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from support.project import ROOT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "collectors/*/README.md", "charts/*/README.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
# These tell of what was, or of other systems, and name what is not here.
ELSEWHERE = ("CHANGELOG.md", "migrating.md")
PRESENT = [page for page in PAGES if page.name not in ELSEWHERE and "decisions" not in page.parts]
# What needs an account, a cluster or an index of the reader's own; docs/README.md says so of the same ones.
FOREIGN = ("aws", "cosign", "docker", "git", "helm", "kubectl", "pip")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A command that a page tells the reader to run."""

    page: str
    text: str

    @property
    def words(self) -> list[str]:
        """The command without the variables before it, the comment behind it and what it is piped into."""
        text = re.split(r"\s+#|\s\|", self.text)[0]
        return re.sub(r"^(\w+=\S+ )+", "", text).replace("`", "").split()

    @property
    def program(self) -> str:
        """What is run: a module where Python runs one."""
        if re.match(r"\w+=\S*\$\(|(cat|eval|export|until) ", self.text):
            return "shell"
        first, *rest = self.words
        if first.rpartition("/")[2] not in ("python", "python3"):
            return first.removeprefix("./")
        return rest[1] if rest[0] == "-m" else rest[0].removeprefix("./")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The language and the text of each block of code."""
    yield from _BLOCK.findall(page.read_text())


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _BLOCK.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """What stands between backticks."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page's blocks, each on one line; output and other languages are left out."""
    for language, text in blocks(page):
        lines = text.replace("\\\n", " ").splitlines()
        if language == "console":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        elif language not in ("sh", "bash"):
            lines = [line for line in lines if not language and "scripts/run_collector.py" in line]
        yield from (Command(name_of(page), line) for line in lines if line.strip())


def anchors(page: Path) -> set[str]:
    """The places of a page that a link can lead to, as GitHub names them."""
    heads = re.findall(r"^#+ (.*)", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
