"""Readers of data sets' own files into numpy arrays, as people have them on disk."""
