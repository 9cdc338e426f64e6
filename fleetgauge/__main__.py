"""Says what the probes are: `python -m fleetgauge`."""

from __future__ import annotations

import sys

from fleetgauge import __version__

ABOUT = f"""fleetgauge {__version__}: probes that run inside training and data-preparation jobs.

  fleetgauge.wandb_logger  a W&B run around a stage of a job, with what it runs on (fleetgauge.compute)
  fleetgauge.xenna         what a cosmos-xenna pipeline knows about itself, as records and to W&B
  fleetgauge.data_plane    calls of NeMo-RL's data plane and the bytes it holds, as records and to W&B
  fleetgauge.gpu_memory    GPU memory of a job as a page and in W&B: python -m fleetgauge.gpu_memory --help
  fleetgauge.records       write and read records, which the service fleetgauge sends to Datadog

Nothing here starts the service: that is scripts/run_collector.py of the repository.
"""

if __name__ == "__main__":
    sys.stdout.write(ABOUT)
