"""HTTP requests with a deadline, retried with backoff."""
