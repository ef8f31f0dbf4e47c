"""What a run records, sent on to TensorBoard or W&B as well: ``--track``.

``tracker`` is the entry; the library of each is imported only when it is asked for.
"""
