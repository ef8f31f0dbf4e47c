"""Fine-tuning: the same network, one task after the other, nothing protected (METHODS §3)."""

from nscl.methods.base import Method


class Finetune(Method):
    """The lower reference for BWT: whatever a method does must beat this."""
