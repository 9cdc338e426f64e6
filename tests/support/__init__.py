"""Helpers that several tests, the demo and the benchmarks share."""
