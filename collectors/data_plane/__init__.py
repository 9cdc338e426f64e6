"""Calls of the RL data plane and the bytes it holds, from the records its clients leave on disk."""
