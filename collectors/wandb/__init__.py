"""W&B runs: the fleet, push-to-main throughput, sweeps, and who holds the GPUs."""

SECRETS = ("WANDB_API_KEY", "FLEETGAUGE_WANDB_USER_HASH_KEY")
