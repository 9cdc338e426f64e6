"""What a person or a program sees of a run.

`points.py` is the sink of a dry run; `table.py` prints it, `export.py` writes JSON and CSV, `page.py` draws
an HTML page with the lines that `grid.py` computes.
"""
