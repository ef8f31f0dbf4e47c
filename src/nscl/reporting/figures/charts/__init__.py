"""The drawings, one module per kind of figure; each makes a matplotlib figure from `plot_data`.

Only `figures.drawing` calls them, by the names that `figures.plans` has.
"""
