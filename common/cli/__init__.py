"""The command line, and the processes of a live push."""
