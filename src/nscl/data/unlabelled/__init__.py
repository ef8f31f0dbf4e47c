"""Pools of images outside all tasks, for methods that learn from unlabelled images.

`pools` opens one, `disjoint` checks that it shares nothing with the stream, `procedural` draws
pictures if there is no data set. A new source of images is a branch of `pools.open_pool`.
"""
