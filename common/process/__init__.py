"""Which process does it: the command line, the parent and its children."""
