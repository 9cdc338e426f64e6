"""How pages are drawn: documents, styles, charts and axes, and files that are there whole or not at all.

The standard library only; nothing that a page needs is loaded from elsewhere.
"""
