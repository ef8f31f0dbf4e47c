"""The files of a run, each with its reader and writer: configuration, metrics, result, spectra.

``record`` checks fields with pydantic and makes errors of one line. The formats are fixed: files of
schema 1 must stay readable, and are written byte for byte as before.
"""
