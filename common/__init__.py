"""The service: the words that everything speaks stand here, what is done with them in the rooms below."""
