"""The command: a page or W&B runs of a recording."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fleetgauge.pages.atomic_file import atomic_file
from fleetgauge.pages.axes import plural
from fleetgauge.pages.page import file_of

from .page import recording_title, render_recording
from .recording import LoadedRecording, RecordingError, load_recording
from .wandb_export import ReadEvents, WandbExportConfig, attribution_files, export_tracking_run_to_wandb


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleetgauge.gpu_memory", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    what = "a telemetry sink directory, a directory of them, a track.json, or an OOM dump"
    export = commands.add_parser("export", help="log each session to W&B as a run")
    export.add_argument("sink", type=Path, help=what)
    export.add_argument("--project", required=True, help="the W&B project")
    export.add_argument("--entity", help="the W&B entity; yours by default")
    export.add_argument("--offline", action="store_true", help="write the run to disk, to be synced later")
    export.add_argument("--artifacts", action="store_true", help="upload the recording and the page as well")
    export.add_argument(
        "--attribution", action="store_true", help="log which tensors used the memory, if known"
    )
    report = commands.add_parser("report", help="write one HTML page")
    report.add_argument("sink", type=Path, help=what)
    where = "the page to write, or a directory where its title names it; here by default"
    report.add_argument("-o", "--output", type=Path, default=Path(), help=where)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 is success, 2 a recording or an option that cannot be used."""
    options = _parser().parse_args(arguments)
    try:
        # Only an export needs the columns of every event; a page is drawn from the profiles.
        loaded = load_recording(options.sink, timelines=options.command == "export")
        for note in loaded.notes:
            _print(f"note: {note}")
        for reason, count in sorted(loaded.losses.items()):
            _print(f"note: {count:,} left out: {reason.replace('_', ' ')}")
        if options.command == "report":
            output = file_of(options.output, recording_title(loaded))
            # A page that is open in a browser, or served from a directory, is never half written.
            with atomic_file(output) as file:
                file.write(render_recording(loaded, script=True))
            _print(f"{output}: {_counted(loaded)}")
        else:
            _export(options, loaded)
    except (RecordingError, OSError, ImportError) as error:
        _print(f"error: {error}")
        return 2
    return 0


def _export(options: argparse.Namespace, loaded: LoadedRecording) -> None:
    """Log each session to W&B as a run of its own. Raises ImportError without W&B, and what W&B raises."""
    config = WandbExportConfig(
        enabled=True,
        project=options.project,
        entity=options.entity,
        mode="offline" if options.offline else None,
        log_artifacts=options.artifacts,
        log_attribution=options.attribution,
    )
    # The latest dump of each session.
    dumps = {dump.session.session_id: dump.path for dump in loaded.oom_dumps if dump.session is not None}
    # The session's events were read already: `ReadEvents` avoids a second pass over the files.
    for session in loaded.sessions:
        export_tracking_run_to_wandb(
            config,
            command_name="gpu-memory-export",
            session_summary=session.summary,
            stats=session.stats,
            events=ReadEvents(session.profile, session.timeline),
            output_path=loaded.path,
            telemetry_sink_dir=loaded.path,
            oom_dump_path=dumps.get(session.summary.session_id),
            attribution_bundle_dir=loaded.path if attribution_files(loaded.path) else None,
        )
    _print(f"exported {_counted(loaded)}")


def _counted(loaded: LoadedRecording) -> str:
    events = sum(session.profile.totals.events for session in loaded.sessions)
    return f"{plural(len(loaded.sessions), 'session')}, {plural(events, 'event')}"


def _print(text: str) -> None:
    """Write a line to stderr, which leaves stdout to the caller."""
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
