"""How pages are drawn: documents, charts and axes, and files that exist complete or not at all.

The standard library only; nothing that a page needs is loaded from elsewhere. `page` makes the document with
its style and optional script, `charts` and `axes` the drawings, `atomic_file` writes the result.
`fleetgauge.gpu_memory.page` and `common.show.page` draw with it.
"""
