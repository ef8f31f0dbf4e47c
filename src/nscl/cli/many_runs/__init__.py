"""Commands for many runs: ``nscl compare``, ``nscl sweep``, ``nscl tune``, and what they share."""
