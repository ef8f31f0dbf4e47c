"""Choosing the strengths of methods: trials, their budget, and the record of the choice.

``trials`` makes the jobs, ``tune`` executes them and chooses, ``tuned_file`` is the record, a JSON
file that ``nscl.training.config`` reads again: its format must stay readable.
"""
