"""What outlives a stream: a few samples of old tasks, and a digest of all of them.

``episodic`` keeps samples for replay methods, ``digest`` compares data without keeping any.
Checkpoints contain what is here, so its ``state_dict`` is a file format.
"""
