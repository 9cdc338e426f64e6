"""One run of one collector, from its settings to its outcome.

`run.py` is the entry point: it makes a `session.py` and runs live, or by `backfill.py` or `check.py`.
`state.py` stores what the next run needs, `health.py` declares the self-metrics, and
`health_dashboard.py` their dashboard and monitors. `common/cli/` starts runs, in this process or in a child.
"""
