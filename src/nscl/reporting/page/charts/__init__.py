"""The page's charts as Vega-Lite specifications, built by Altair from ``plot_data``.

Each module has one kind of chart and returns cards: a title and a specification. Altair takes
half a second to import, so nothing outside this folder may import it at the top of a module.
"""
