"""Errors and warnings. A message names the object, the reason and what to do."""


class NsclError(Exception):
    """A problem that the user can fix; the command line shows its message without a traceback."""


class UnsupportedError(NsclError, TypeError):
    """The model has a layer or parameter that nscl cannot protect, or does not know."""


class ModelMismatchError(NsclError, ValueError):
    """A memory and a model do not match: names the layer and both shapes."""


class FeatureError(NsclError, ValueError):
    """Data given to ``remember`` cannot be used: not finite, empty or rejected by the model."""


class MemoryFileError(NsclError, ValueError):
    """A file is not a memory: truncated, another format, or from a newer version."""


class ProtectionError(NsclError, RuntimeError):
    """An optimizer cannot be protected, or is already protected."""


class NsclWarning(UserWarning):
    """Training continues, but probably not as the user expects."""


class StatisticsWarning(NsclWarning):
    """Running statistics of norm layers have moved far, and old outputs with them."""
