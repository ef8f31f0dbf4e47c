"""GD-WILD: global distillation with images that belong to no task.

``method`` is the method and its phases, ``losses`` its mathematics, ``sources`` the old and
external images of a step.
"""
