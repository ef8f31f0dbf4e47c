"""Runs: one configuration, one loop for all methods, checkpoints that survive any kill.

``experiment.run`` is the entry. ``task_loop`` and ``loop`` train, ``setup`` builds the parts; a
method or network of your own needs no change in here.
"""
