"""One run of one collector, from its settings to its outcome."""
