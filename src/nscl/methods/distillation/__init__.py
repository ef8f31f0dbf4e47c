"""Methods in which an old network teaches the new one: LwF, and GD-WILD in its own folder.

``losses`` has their distillation losses; copies of networks that teach are in ``methods.teacher``.
"""
