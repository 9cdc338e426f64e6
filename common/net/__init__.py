"""HTTP requests with a deadline, retried with backoff.

`http.py` sends requests and classifies failures, `retry.py` has the deadline of a run and the retries.
`common/datadog/client.py` and the collectors use both.
"""
