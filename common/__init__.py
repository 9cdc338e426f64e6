"""The service: shared types are at this level, what uses them in the packages below."""
