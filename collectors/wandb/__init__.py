"""W&B runs: the fleet, push-to-main throughput, sweeps, and who holds the GPUs."""
