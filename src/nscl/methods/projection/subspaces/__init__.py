"""Subspaces of old inputs as GPM, SGP, AdNS and OWM keep them: pure functions of matrices."""
