"""The settings of the W&B collector.

docs/settings.md and the example configuration are generated from the fields. Names that W&B's own client
reads (`WANDB_…`) are the same here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from collectors.wandb.groups import Owners, parse_prices, tag_keys
from common.config.settings import (
    CollectorSettings,
    Duration,
    NonBlankSecret,
    Secret,
    Text,
    Texts,
    Url,
    named,
)


class Project(NamedTuple):
    """A W&B project: its entity, and its name, which is * for all projects of the entity."""

    entity: str
    name: str

    def __str__(self) -> str:
        return f"{self.entity}/{self.name}"


def _checked_by(parse: Callable[[tuple[str, ...]], object]) -> AfterValidator:
    """Return a validator that refuses a value which could not be parsed later."""

    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        parse(value)
        return value

    return AfterValidator(check)


class WandbSettings(CollectorSettings):
    """Which projects to read, with which key, and how to count their runs."""

    model_config = named("FLEETGAUGE_WANDB_")

    api_key: Secret = Field(
        validation_alias="WANDB_API_KEY", description="API key that can read the projects."
    )
    projects: Texts = Field(
        (),
        validation_alias="WANDB_PROJECTS",
        description="Projects to read, as entity/project or entity/* (all of them), separated by commas.",
    )
    entity: Text | None = Field(
        None,
        validation_alias="WANDB_ENTITY",
        description="Owner of WANDB_PROJECT, where that is the only one.",
    )
    project: Text | None = Field(
        None,
        validation_alias="WANDB_PROJECT",
        description="The one project to read; WANDB_PROJECTS takes precedence.",
    )
    base_url: Url = Field(
        "https://api.wandb.ai", validation_alias="WANDB_BASE_URL", description="Address of the W&B API."
    )
    window: Duration = Field(
        86400, ge=1, description="How far back a run may have ended to be counted; metric names assume 24 h."
    )
    stale_after: Duration = Field(
        900, ge=1, description="Age of the last heartbeat from which a running run is stale, not active."
    )
    pending_for: Duration = Field(
        2_592_000, ge=1, description="How long a run may wait to start; an older one is not counted."
    )
    push_to_main: Text = Field(
        "github.sky.*", description="Shell pattern of the names of push-to-main runs; case matters."
    )
    gpu_count_key: Text | None = Field(
        None, description="Config or summary key with a run's number of GPUs over all nodes (world size)."
    )
    assumed_gpus: int = Field(
        1, ge=0, le=1_000_000, description="GPUs of a run whose number of GPUs is unknown."
    )
    page_size: int = Field(500, ge=1, le=1000, description="Runs per request, at most.")
    connections: int = Field(4, ge=1, le=16, description="Concurrent requests, at most; of all shards.")
    pause: Duration = Field(0, ge=0, description="Wait between the starts of two requests.")
    max_runs: int = Field(
        200_000, ge=1, description="Runs one project may list; more than this is an error, not a wrong count."
    )

    usage: bool = Field(True, description="Whether to send GPU usage by group (`wandb.usage.*`).")
    utilization: bool = Field(True, description="Whether to send GPU utilisation, and which runs are idle.")
    group_by: Annotated[Texts, _checked_by(tag_keys)] = Field(
        ("user", "gpu_type"),
        description="Tags of a group: user, gpu_type, group, job_type, kind, and tag:<prefix> for the "
        "remainder of a run's first W&B tag with that prefix.",
    )
    max_groups: int = Field(
        200, ge=0, description="Groups of one project; all others are summed as `_other`."
    )
    user_hash_key: NonBlankSecret | None = Field(
        None,
        description="Key of the hash that is sent instead of usernames; unset, usernames are sent. Empty is "
        "an error.",
    )
    gpu_prices: Annotated[Texts, _checked_by(parse_prices)] = Field(
        (), description="Dollars per GPU hour by type: `h100=2.49,a100-80gb=1.79,default=1.20`."
    )
    idle_below: float = Field(
        5, ge=0, le=100, description="Utilisation, in percent, under which GPUs are idle."
    )
    idle_after: Duration = Field(3600, ge=1, description="How long the GPUs of an idle run have been idle.")
    idle_runs: int = Field(20, ge=0, description="Idle runs of one project that are sent by name.")

    # Of two fields together, which no validator of a single field can check.
    @model_validator(mode="after")
    def _names_a_project(self) -> Self:
        """Raise where no project is named, or a path is neither entity/project nor entity/*."""
        if not self.projects and not (self.entity and self.project):
            raise PydanticCustomError("missing", "WANDB_PROJECTS (or WANDB_ENTITY and WANDB_PROJECT)")
        for path in self.projects:
            parts = path.split("/")
            if len(parts) != 2 or not all(parts) or "*" in path.removesuffix("/*"):
                raise ValueError(
                    f"WANDB_PROJECTS: {path!r} is not a project: write entity/project or entity/*"
                )
        return self

    @property
    def grouping(self) -> tuple[str, ...]:
        """Return the parts of a group; none where neither usage nor utilisation is sent."""
        return self.group_by if self.usage or self.utilization else ()

    @property
    def prices(self) -> dict[str, int]:
        """Return the prices by GPU type, in millionths of a dollar."""
        return parse_prices(self.gpu_prices)

    @property
    def owners(self) -> Owners:
        """Return a reader of owners, with a cache of its own."""
        key = None if self.user_hash_key is None else self.user_hash_key.get_secret_value()
        return Owners(self.grouping, self.prices, key)

    def chosen(self) -> list[Project]:
        """Return the projects to read, each once; all of an entity as one named *."""
        if self.projects:
            return [Project(*path.split("/")) for path in dict.fromkeys(self.projects)]
        return [Project(self.entity or "", self.project or "")]
