"""How anything leaves the process: points, historical ingestion, dashboards, monitors and metadata.

Points take the path `series.py` (what Datadog would store), `payloads.py` (limits and compression),
`intake.py` (delivery), `client.py` (requests). `provisioning.py` writes the documents that `documents.py`
makes, and shows changes with `diff.py`.
"""
