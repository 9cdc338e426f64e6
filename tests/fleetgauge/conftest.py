"""Hypothesis for all probes: how long one example takes says nothing of the code, but of the machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("probes", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("probes")
