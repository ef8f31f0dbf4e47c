"""Fine-tuning: the same network, one task after the other; nothing is protected.

See docs/methods.md, "Baselines".
"""

from nscl.methods.base import Method


class Finetune(Method):
    """The lower reference for BWT: every method must be better."""

    scenarios = ("task", "domain", "class")
