"""Public data sets on disk: their published files, where they are found, how they are downloaded.

`canonical` is the table of facts. The format of the cache may change: it is written again.
"""
