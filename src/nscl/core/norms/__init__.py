"""Normalisation layers: EWC holds scale and shift, running statistics are measured or frozen.

During a step ``ewc`` replaces gradients, and puts the user's own back afterwards.
"""
