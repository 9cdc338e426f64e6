"""W&B runs: the fleet, push-to-main throughput, sweeps, and who uses the GPUs.

Reading: `api` sends a request, `query` writes and parses it, `slices` decides what to request, `reader` runs
the requests. Computing: `runs` and `groups` parse a run, `ledger` and `utilization` compute the metrics that
`metrics` declares, `collector` connects all of them.
"""

SECRETS = ("WANDB_API_KEY", "FLEETGAUGE_WANDB_USER_HASH_KEY")
