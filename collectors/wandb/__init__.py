"""W&B runs: the fleet, push-to-main throughput and sweeps."""
