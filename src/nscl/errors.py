"""Errors and warnings that name the thing, the reason and the way out."""


class NsclError(Exception):
    """Something the user can mend; its message is one clear line, shown without a traceback."""


class UnsupportedError(NsclError, TypeError):
    """The model has something that cannot be protected, or that nobody taught nscl to protect."""


class ModelMismatchError(NsclError, ValueError):
    """A memory and a model do not belong together: names the layer and both shapes."""


class FeatureError(NsclError, ValueError):
    """Data given to ``remember`` cannot be used: non-finite, empty or refused by the model."""


class MemoryFileError(NsclError, ValueError):
    """A file is not a memory: truncated, foreign, or written by a newer version."""


class ProtectionError(NsclError, RuntimeError):
    """An optimizer cannot be protected, or is protected already."""


class NsclWarning(UserWarning):
    """Training goes on, but not as the user probably believes."""
