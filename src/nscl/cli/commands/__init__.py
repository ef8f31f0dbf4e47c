"""One command per file: ``nscl run`` is ``run.py``."""
