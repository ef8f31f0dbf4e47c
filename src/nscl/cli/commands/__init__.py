"""One command per file, with one function that has its name: ``nscl run`` is ``run.py``.

Commands that execute many runs are in ``many_runs``. What a command computes is a call into another
folder; only flags and output belong here, and no command imports another one.
"""
