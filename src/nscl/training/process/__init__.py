"""The process that a run is in: device, ranks, random numbers, interrupts.

Nothing in here knows methods or data.
"""
