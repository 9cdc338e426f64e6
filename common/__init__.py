"""The service: everything but the collectors themselves.

`docs/architecture.md` has the picture. Imports are directed down it: `cli`, `run`, then `records`, `datadog`
and `show`, then `collector.py`, then `config` and `net`, and below them the modules of this folder.
"""
