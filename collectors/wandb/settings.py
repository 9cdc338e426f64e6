"""What a person may set for the W&B collector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from collectors.wandb.owners import Owners, parse_prices, tag_keys
from common.config.settings import CollectorSettings, Duration, Secret, Text, Texts, Url, named


class Project(NamedTuple):
    """A W&B project: whose it is, and its name, which is * for all projects of that entity."""

    entity: str
    name: str

    def __str__(self) -> str:
        return f"{self.entity}/{self.name}"


def _checked_by(parse: Callable[[tuple[str, ...]], object]) -> AfterValidator:
    """Have a value refused that could not be used later."""

    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        parse(value)
        return value

    return AfterValidator(check)


class WandbSettings(CollectorSettings):
    """Which projects to read, with which key, and how their runs are judged."""

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
        description="The one project to read; WANDB_PROJECTS wins over it.",
    )
    base_url: Url = Field(
        "https://api.wandb.ai", validation_alias="WANDB_BASE_URL", description="Where the W&B API is."
    )
    window: Duration = Field(
        86400, ge=1, description="How far back a run may have ended to be counted; 24 h as the names say."
    )
    stale_after: Duration = Field(
        900, ge=1, description="Age of the last heartbeat from which a running run is stale, not active."
    )
    pending_for: Duration = Field(
        2_592_000,
        ge=1,
        description="How long a run may wait to start; an older one is forgotten, not waiting.",
    )
    push_to_main: Text = Field(
        "github.sky.*", description="Shell pattern of the names of push-to-main runs; case matters."
    )
    gpu_count_key: Text | None = Field(
        None,
        description="Config or summary key that holds a run's number of GPUs over all nodes (world size).",
    )
    assumed_gpus: int = Field(1, ge=0, le=1_000_000, description="GPUs of a run that does not say how many.")
    page_size: int = Field(500, ge=1, le=1000, description="Runs asked for in one request, at most.")
    connections: int = Field(
        4, ge=1, le=16, description="Requests under way together, at most; of all shards."
    )
    pause: Duration = Field(0, ge=0, description="Wait between the starts of two requests.")
    max_runs: int = Field(
        200_000, ge=1, description="Runs one project may list; more than this is an error, not a wrong count."
    )

    usage: bool = Field(True, description="Whether to tell who holds the GPUs (`wandb.usage.*`).")
    utilization: bool = Field(True, description="Whether to tell how busy GPUs are, and which runs are idle.")
    group_by: Annotated[Texts, _checked_by(tag_keys)] = Field(
        ("user", "gpu_type"),
        description="What GPUs are told by: user, gpu_type, group, job_type, kind, and tag:<prefix> for the "
        "rest of a run's first W&B tag with that prefix.",
    )
    max_groups: int = Field(
        200, ge=0, description="Groups over all projects of a shard; the rest of each is `_other`."
    )
    user_hash_key: Secret | None = Field(
        None, description="Key of the hash that is sent in place of usernames; without it they are sent."
    )
    gpu_prices: Annotated[Texts, _checked_by(parse_prices)] = Field(
        (), description="Dollars a GPU hour costs by type: `h100=2.49,a100-80gb=1.79,default=1.20`."
    )
    idle_below: float = Field(5, ge=0, le=100, description="Utilisation, in percent, under which GPUs idle.")
    idle_after: Duration = Field(3600, ge=1, description="How long a run must idle to be told of.")
    idle_runs: int = Field(20, ge=0, description="Idle runs that are named, over all projects of a shard.")

    @model_validator(mode="after")
    def _names_a_project(self) -> Self:
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
    def told_by(self) -> tuple[str, ...]:
        """What GPUs are told by; nothing where nothing is told of them."""
        return self.group_by if self.usage or self.utilization else ()

    @property
    def owners(self) -> Owners:
        """How the owners of runs are read."""
        key = None if self.user_hash_key is None else self.user_hash_key.get_secret_value()
        return Owners(self.told_by, parse_prices(self.gpu_prices), key)

    def chosen(self) -> list[Project]:
        """The projects to read, each once; all of an entity as one named *."""
        if self.projects:
            return [Project(*path.split("/")) for path in dict.fromkeys(self.projects)]
        return [Project(self.entity or "", self.project or "")]
