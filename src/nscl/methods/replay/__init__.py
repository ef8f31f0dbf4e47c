"""Methods that keep old images (episodic memory): GEM, A-GEM and MEGA.

``base`` is what they share. They correct gradients as one vector (``flat_gradients``); GEM solves a
quadratic program (``qp``).
"""
