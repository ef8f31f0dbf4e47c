"""Commands for many runs: ``nscl compare``, ``nscl sweep``, ``nscl tune``, and what they share.

``run_many`` has the flags they share and executes their jobs. Plans, engines and displays are in
``nscl.engines``; a new command of this kind is a file here and a line in ``app.COMMANDS``.
"""
