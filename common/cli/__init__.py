"""The command line, and the processes of a live push.

`main.py` dispatches, `arguments.py` is the grammar, `supervise.py` has parent and child, `environment.py` the
variables of a child, `streams.py` and `progress.py` what a terminal shows, `completion.py` scripts for
shells. What is run is in `common/run/`.
"""
