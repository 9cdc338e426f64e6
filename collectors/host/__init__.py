"""Cores, load and memory of the node this runs on."""
