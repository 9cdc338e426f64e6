"""How pages are drawn: documents, styles, charts and axes, and files that exist complete or not at all.

The standard library only; nothing that a page needs is loaded from elsewhere. `page` and `style` make the
document, `charts` and `axes` the drawings, `hover` the optional script, `atomic_file` writes the result.
`fleetgauge.gpu_memory.page` and `common.show.page` draw with it.
"""
