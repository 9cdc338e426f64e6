"""GPU memory of running and ended jobs, from the telemetry sinks that stormlog leaves on disk."""
