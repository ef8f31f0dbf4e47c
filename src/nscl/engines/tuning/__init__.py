"""Choosing the strengths of methods: trials, their budget, and the record of the choice.

``trials`` makes the jobs, ``tune`` executes them and chooses, ``search`` knows what to try next.
``tuned_file`` is the record, which must stay readable: records are committed beside plans.
"""
