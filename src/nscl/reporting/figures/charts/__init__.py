"""The drawings, one module per kind of figure; each makes a matplotlib figure from `plot_data`."""
