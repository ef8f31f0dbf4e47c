"""Readers of published file formats, one per file, each from a path to a `raw.RawDataset`.

They know nothing of tasks or torch. A new data set is one reader here, its facts in
`nscl.data.disk.canonical` and a line in `nscl.data.opening`.
"""
