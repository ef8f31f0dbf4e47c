"""The configuration of a run: its schema, presets, tuned values, and how they are merged.

A new setting is a field of ``schema.RunConfig``; the command line follows. No torch in here.
"""
