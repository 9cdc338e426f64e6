"""The runs of a project, each once, with what was lost of them. Knows nothing of what the runs mean."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from collectors.wandb.pages import Page
from collectors.wandb.runs import Run
from collectors.wandb.settings import Project


@dataclass
class Listing:
    """The runs of a project, what was lost of them by reason, and how many rows were never shown."""

    project: Project
    total: int | None = None
    unserved: int = 0
    errors: int = 0
    _runs: dict[str | int, Run | None] = field(default_factory=dict)  # by id; by offset where there is none
    _flaws: dict[str | int, list[str]] = field(default_factory=dict)

    @property
    def runs(self) -> list[Run]:
        """Every run that could be read."""
        return [run for run in self._runs.values() if run is not None]

    @property
    def listed(self) -> int:
        """How many different rows were shown, readable or not."""
        return len(self._runs)

    @property
    def unseen(self) -> int | None:
        """How many rows were counted but not shown; None where the server does not count them."""
        return None if self.total is None else max(0, self.total - self.listed)

    @property
    def dropped(self) -> Counter[str]:
        """What was lost, by reason."""
        lost = Counter(reason for flaws in self._flaws.values() for reason in flaws)
        lost.update(unserved_run=self.unserved, graphql_error=self.errors)
        return +lost

    def example(self, reason: str) -> str:
        """Where something was lost for the first time."""
        for key, flaws in self._flaws.items():
            if reason in flaws:
                run = self._runs[key]
                return f"{self.project}, run {run.id if run else key}"
        return f"{self.project}"

    def __contains__(self, name: object) -> bool:
        return name in self._runs

    def take(self, page: Page, *, newer: bool = True) -> None:
        """Add the rows of a page. Of a run that is listed twice, the later page is the newer truth."""
        self.errors += page.errors
        for place, (name, run) in enumerate(zip(page.ids, page.runs, strict=True)):
            key = page.begin + place if name is None else name
            if key in self._runs and not newer:
                continue
            self._runs[key] = run
            if place in page.flaws:
                self._flaws[key] = page.flaws[place]
            elif self._flaws:
                self._flaws.pop(key, None)
