"""Tables: rows as data, formats (Markdown, LaTeX, CSV), published numbers to compare with.

``rows`` makes a table from runs and ``columns`` lists what it can show; ``formats`` and ``latex``
write it. A new column is an entry in ``columns.COLUMNS``.
"""
