"""The numbers behind each figure, computed once for the paper figures and for the page."""
