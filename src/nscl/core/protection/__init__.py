"""The protection of an optimizer: hooks around its steps, and what they share with a memory.

``step_hooks`` has the class that users see; ``live_state`` is all it knows of its memory.
"""
