"""The numbers behind each figure, computed once for the paper figures and for the page.

``figures`` and ``page.charts`` draw them; nothing here imports either. ``missing`` says why a
figure cannot be drawn, and from which runs.
"""
