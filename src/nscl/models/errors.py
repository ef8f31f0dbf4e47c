"""The error about a model that cannot be built or used."""

from nscl.errors import NsclError


class ModelError(NsclError, ValueError):
    """A model cannot be built or used as asked: names the model, the reason and the way out."""
