"""What a person or a program sees of a run: tables, JSON, CSV, a page."""
