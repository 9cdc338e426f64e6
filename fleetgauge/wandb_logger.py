"""A W&B run around a stage of a job, with what the stage runs on in its configuration.

Knows W&B and where its settings come from. W&B is a guest in the job: where it is missing, switched off or
out of order the job continues without it, after one warning. `fleetgauge.compute` collects the metadata,
`wandb_package` imports W&B.
"""

from __future__ import annotations

import logging
import os
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fleetgauge import wandb_package
from fleetgauge.compute import collect_compute_metadata
from fleetgauge.compute.user_config import field, fields
from fleetgauge.records.background import describe

_log = logging.getLogger("fleetgauge.wandb")

# Where W&B is down, its own patience (90 s to start, for ever to finish) would be the job's. What was not
# sent by then stays on disk for `wandb sync`. A setting of the user's own is left alone.
_PATIENCE = {"init_timeout": 30.0, "login_timeout": 30.0, "finish_timeout": 300.0}
_SETTINGS = ("project", "entity", "mode", "dir", "group", "name")
_SAMPLING = ("table_sample_rows", "table_sample_seed")
# What is collected of the machine, and is another one's where a run is resumed elsewhere.
_OF_MACHINE = ("compute", "slurm", "system")
_SAMPLE_ROWS, _SAMPLE_SEED = 1000, 777
_STARTED = {"online": "ONLINE - real-time syncing", "offline": "OFFLINE - sync later with wandb sync"}


class WandbLogger:
    """The run of one stage, as a context manager.

    The run starts on entry, with `collect_compute_metadata` in its configuration, and finishes on leaving: as
    failed where an exception leaves with it. Project, entity, mode, dir, group, tags and name come from
    `cfg.wandb`, the first five else from W&B's own variables; `cfg.wandb.enabled` set to false switches W&B
    off. `run_id` ends the run's name; `id` is W&B's own, and continues that very run where it exists, or as
    `resume` states. `run_config` is the user's own configuration, and wins over what was collected.

    After construction nothing raises: what W&B cannot do is logged, once as a warning. Without a run, the
    methods do nothing.
    """

    def __init__(
        self,
        cfg: object,
        stage: str,
        run_id: str | None = None,
        run_config: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        id: str | None = None,  # noqa: A002  # W&B's own name
        resume: str | bool | None = None,
        env: Mapping[str, str] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Read the settings; nothing is imported or started. Raises ValueError without a stage.

        `cfg` is a mapping, an object or OmegaConf. `env` and `now` replace the environment and the clock.
        """
        if not stage:
            raise ValueError("a W&B run needs the name of its stage, such as 'classify'")
        self.stage = stage
        self.run_id = run_id
        self._id = id
        self._resume = resume
        # The class is W&B's own, and W&B may not be there.
        self.run: Any = None
        self._cfg = cfg
        self._run_config = dict(run_config or {})
        self._env = os.environ if env is None else env
        self._now = now
        self._settings = _settings(cfg, self._env)
        self._name = name or self._settings.get("name")
        # W&B as it was imported.
        self._wandb: Any = None
        self._warned = False

    @property
    def enabled(self) -> bool:
        """Return whether W&B is switched on and installed."""
        return self._settings["mode"] != "disabled" and wandb_package.is_installed()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Finish the run, as failed where an exception leaves; the exception propagates."""
        self.finish(_exit_code(error))

    def start(self) -> None:
        """Start the run, unless it runs already or W&B is switched off.

        Where W&B cannot be imported or started, it warns and the job continues.
        """
        if self.run is not None:
            return
        mode = self._settings["mode"]
        if mode == "disabled":
            self._warn_lost("W&B is switched off, so this run is not logged", None)
            return
        name = self._name or f"{self._settings['project']}-{self.stage}-{self._now():%Y%m%d-%H%M%S}"
        if self.run_id is not None:
            name = f"{name}-{self.run_id}"
        _print(f"[wandb] Starting run: {name} (mode={mode}, dir={self._settings.get('dir', os.curdir)})")
        try:
            # Without it W&B would write into a temporary directory.
            if "dir" in self._settings:
                Path(self._settings["dir"]).mkdir(parents=True, exist_ok=True)
            self._wandb = wandb_package.load()
            self.run, self._pid = self._init(name, mode), os.getpid()
        except Exception as error:
            self._warn_lost("the W&B run could not be started, and the job goes on without it", error)
            return
        self._log_compute_metadata()
        _print(f"[wandb] ✓ Run started: {name} ({_STARTED.get(mode, mode)})")

    def finish(self, exit_code: int = 0) -> None:
        """Finish the run; W&B marks it as failed where the exit code is not 0."""
        # Forgotten first: a second call, or one after a failure, does nothing.
        run, self.run = self.run, None
        # In a forked child that leaves the stage, too, it is the parent's run, and W&B would hang.
        if run is None or self._pid != os.getpid():
            return
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:
            self._warn_lost("the W&B run could not be finished", error)

    def log_metrics(
        self, metrics: Mapping[str, Any], step: int | None = None, commit: bool | None = None
    ) -> None:
        """Log one row of values; with `commit=False` the next call adds to it.

        Without a `step`, W&B counts. A step that has passed is dropped by W&B.
        """
        options: dict[str, Any] = {} if commit is None else {"commit": commit}
        self._attempt("metrics", lambda: self.run.log(dict(metrics), step=step, **options))

    def log_table(
        self,
        rows: object,
        key: str,
        columns: Sequence[str] | None = None,
        *,
        prefer_cols: Sequence[str] | None = None,
        max_rows: int | None = None,
        panel_group: str | None = None,
    ) -> None:
        """Log a table: a DataFrame, a list of mappings, or a list of lists with its `columns`.

        Of a DataFrame or of mappings only `prefer_cols` are logged, where it has any of them. Of more than
        `max_rows` rows (else `cfg.wandb.table_sample_rows`, else 1,000; W&B takes 10,000) a random sample is
        logged; `<key>/rows` and `<key>/total_rows` are how many there are. `panel_group` is the panel that
        W&B shows it in.
        """

        def log() -> None:
            most = max_rows or self._settings.get("table_sample_rows") or _SAMPLE_ROWS
            # W&B itself cuts a longer table off at its end.
            most = min(most, getattr(self._wandb.Table, "MAX_ROWS", most))
            seed = self._settings.get("table_sample_seed", _SAMPLE_SEED)
            table, shown, total = _sampled_table(self._wandb, rows, columns, prefer_cols, most, seed)
            row = {
                f"{panel_group}/{key}" if panel_group else key: table,
                f"{key}/rows": shown,
                f"{key}/total_rows": total,
            }
            if shown < total:
                row |= {f"{key}/sampled": True, f"{key}/sample_seed": seed}
            self.run.log(row)

        self._attempt(f"table {key}", log)

    # The figure is of matplotlib, of Plotly or of W&B, none of which need be there.
    def log_plot(self, key: str, figure: Any) -> None:
        """Log a figure: of matplotlib, of Plotly, or any of W&B's own kinds."""
        drawn = hasattr(figure, "savefig")
        self._attempt(
            f"plot {key}", lambda: self.run.log({key: self._wandb.Image(figure) if drawn else figure})
        )

    def log_artifact(
        self,
        artifact_path: str | os.PathLike[str],
        name: str,
        type: str = "dataset",  # noqa: A002  # W&B's own name
    ) -> None:
        """Log a file or a directory as an artifact; W&B uploads it in the background."""
        self._attempt(
            f"artifact {name}", lambda: self.run.log_artifact(os.fspath(artifact_path), name=name, type=type)
        )

    # The value is whatever W&B can hold.
    def set_summary(self, key: str, value: Any) -> None:
        """Set one value of the run's summary."""
        self._attempt(f"summary {key}", lambda: self.run.summary.update({key: value}))

    def set_config(self, values: Mapping[str, Any], allow_val_change: bool = True) -> None:
        """Merge values deeply into the run's configuration, over what is there.

        Without `allow_val_change` W&B refuses all of them where one would change a value.
        """

        def update() -> None:
            self.run.config.update(merge(self._present(values), values), allow_val_change=allow_val_change)

        self._attempt("configuration", update)

    def _init(self, name: str, mode: str) -> Any:
        """Return a new run of W&B. Raises what W&B raises."""
        # Releases of W&B differ in their settings, and an unknown one raises.
        known = getattr(self._wandb.Settings, "model_fields", {})
        patience = {
            setting: seconds
            for setting, seconds in _PATIENCE.items()
            if setting in known and f"WANDB_{setting.upper()}" not in self._env
        }
        options = {key: self._settings.get(key) for key in ("project", "entity", "dir", "group", "tags")}
        options["id"] = self._id
        # By default W&B would begin a run that exists anew. Offline there is nothing to continue.
        resume = "allow" if self._resume is None and self._id is not None else self._resume
        options["resume"] = resume if mode != "offline" else None
        # Beside a run that is not ours: W&B would hand us that one, and we would finish it.
        options["reinit"] = "create_new" if self._wandb.run is not None else None
        return self._wandb.init(
            name=name,
            mode=mode,
            job_type=self.stage,
            config=self._run_config,
            settings=self._wandb.Settings(**patience),
            **{key: value for key, value in options.items() if value is not None},
        )

    def _log_compute_metadata(self) -> None:
        """Merge what is collected of the machine into the configuration of the run."""
        metadata = collect_compute_metadata(self._cfg, env=self._env)

        def update() -> None:
            # Nested: W&B's filters do not match keys with dots.
            nested = nest(metadata)
            present = self._present((*nested, *_OF_MACHINE))
            if getattr(self.run, "resumed", False):
                # Here W&B has filled in what the server holds: the machine that the run began on.
                own = {key: self._run_config[key] for key in _OF_MACHINE if key in self._run_config}
                nested |= {key: nested.get(key, {}) for key in _OF_MACHINE if key in present}
                present = {key: value for key, value in present.items() if key not in _OF_MACHINE} | own
            self.run.config.update(merge(nested, present), allow_val_change=True)
            cpus, gpus = (metadata.get(f"compute.{unit}_count", "unknown") for unit in ("cpu", "gpu"))
            _print(f"[wandb] ✓ Logged compute metadata: {cpus} CPUs, {gpus} GPUs")

        self._attempt("compute metadata", update)

    def _present(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return what the run's configuration has under these keys.

        `config.update` replaces a nested mapping, so that it has to be merged before.
        """
        config = self.run.config.as_dict()
        return {key: config[key] for key in keys if key in config}

    def _attempt(self, what: str, action: Callable[[], object]) -> None:
        """Run an action on the run, if there is one; what it raises is logged and not raised."""
        if self.run is None:
            return
        try:
            action()
        except Exception as error:
            self._warn_lost(f"{what} could not be logged to W&B", error)

    def _warn_lost(self, what: str, error: Exception | None) -> None:
        """Log what is lost: the first time as a warning, later ones at debug level, without the API key."""
        reason = f": {describe(error)}" if error is not None else ""
        # An error of W&B may quote its settings.
        if key := self._env.get("WANDB_API_KEY"):
            reason = reason.replace(key, "[api key]")
        _log.log(
            logging.DEBUG if self._warned else logging.WARNING, "[wandb] %s: %s%s", self.stage, what, reason
        )
        self._warned = True


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with dots as mappings: W&B's filters do not find `compute.gpu_count` written as one key."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        level = nested
        for name in path:
            level = level.setdefault(name, {})
        level[last] = value
    return nested


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return both as one, key by key at every depth; where they differ, `over` wins."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def _settings(cfg: object, env: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of `cfg.wandb`, else of W&B's own variables.

    `project` and `mode` are always among them.
    """
    section = fields(field(cfg, "wandb"), ("enabled", "tags", *_SETTINGS, *_SAMPLING))
    settings: dict[str, Any] = {key: str(section[key]) for key in _SETTINGS if section.get(key, "") != ""}
    for key in ("project", "entity", "mode", "dir", "group"):
        if key not in settings and (value := env.get(f"WANDB_{key.upper()}")):
            settings[key] = value
    settings.setdefault("project", "uncategorized")
    settings["mode"] = settings.get("mode", "online").strip().lower()
    if not section.get("enabled", True) or env.get("WANDB_DISABLED", "").lower() in ("1", "true", "yes"):
        settings["mode"] = "disabled"
    # What is not a number is ignored: a table is then sampled as by default.
    settings |= {key: int(section[key]) for key in _SAMPLING if str(section.get(key, "")).isdecimal()}
    if tags := section.get("tags"):
        settings["tags"] = [tags] if isinstance(tags, str) else tags
    return settings


def _exit_code(error: BaseException | None) -> int:
    """Return 0 without an error, the code of `sys.exit`, and 1 for any other."""
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return error.code or 0
    return 1


def _print(line: str) -> None:
    """Print a line, in ASCII where the terminal knows no more, or nothing where that is not possible."""
    try:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        sys.stdout.flush()
    except Exception:  # whatever the host has put in its place
        _log.debug("%s", line)


# Any: W&B as it was imported, and a DataFrame or a list of whatever W&B can show.
def _sampled_table(
    wandb: Any,
    rows: Any,
    columns: Sequence[str] | None,
    preferred: Sequence[str] | None,
    max_rows: int,
    seed: int,
) -> tuple[Any, int, int]:
    """Return a table of at most so many rows, selected at random, in order; its rows, and those there were.

    Knows DataFrames by what they can do, without importing pandas. `preferred` are columns to log where any
    of them exists; `seed` makes the sample repeatable. Raises what W&B raises.
    """
    if hasattr(rows, "iloc"):
        # Two columns of one name could not be selected by name: the first is logged.
        frame = rows.loc[:, ~rows.columns.duplicated()]
        selected = _choose(list(frame.columns), preferred or columns)
        indices = _indices(len(frame), max_rows, seed)
        table = wandb.Table(dataframe=frame[selected].iloc[indices], allow_mixed_types=True)
        return table, len(indices), len(frame)
    listed = list(rows)
    if columns is None:
        columns = _choose(list(dict.fromkeys(name for row in listed for name in row)), preferred)
    indices = _indices(len(listed), max_rows, seed)
    chosen = (listed[index] for index in indices)
    cells = [[row.get(name) for name in columns] if isinstance(row, Mapping) else list(row) for row in chosen]
    table = wandb.Table(columns=list(columns), data=cells, allow_mixed_types=True)
    return table, len(indices), len(listed)


def _choose(present: list[str], preferred: Sequence[str] | None) -> list[str]:
    """Return those of the preferred columns that exist, all columns where none does."""
    return [name for name in preferred or () if name in present] or present


def _indices(count: int, most: int, seed: int) -> list[int]:
    """Return the positions of the rows to log, in order: all, or a random sample."""
    if count <= most:
        return list(range(count))
    return sorted(random.Random(seed).sample(range(count), most))  # noqa: S311  # nothing secret
