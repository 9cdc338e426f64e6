"""Where implementations are."""
