"""What is shown while many runs go on: progress, plain lines, JSON, a live table.

``progress`` is the data, which the other modules draw. Displays receive what workers send and
change nothing; what one run shows is in ``nscl.training.display``.
"""
