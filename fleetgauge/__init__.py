"""Probes that run inside training and data-preparation jobs.

They write records (see docs/records.md) or log to W&B, import nothing heavy, and from the moment they are
built never raise into, block or slow the job that hosts them. The service that reads the records is not part
of this package.

`data_plane`, `gpu_memory` and `xenna` each observe one system; `compute` describes the machine, `records`
writes files, `pages` draws, `wandb_logger` runs a stage with W&B.
"""

__version__ = "0.3.0"
