"""The command line: one file per command, imported when it is called.

A new command is a function in ``commands`` and a line in ``app.COMMANDS``. Flags that are settings
of a run come from ``RunConfig``.
"""

from nscl.cli.app import main

__all__ = ["main"]
