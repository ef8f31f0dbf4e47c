"""The error of a configuration; a module of its own, because all others here raise it."""

from nscl.errors import NsclError


class ConfigError(NsclError, ValueError):
    """A configuration that cannot be run: names the option, the value and what is allowed."""
