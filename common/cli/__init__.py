"""The command line, and the processes of a live push.

`main.py` dispatches, `arguments.py` is the grammar, `supervise.py` has parent and child. What is run is in
`common/run/`.
"""
