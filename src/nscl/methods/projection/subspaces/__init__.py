"""Subspaces of old inputs as GPM, SGP, AdNS and OWM keep them: pure functions of matrices.

Nothing here knows a layer, an optimizer or a method; the methods in ``projection`` hand these
functions to a ``Memory`` as its projector.
"""
