"""From covariances to treated steps: rules, eigenvalues, projectors, the plan of one optimizer.

``rules``, ``spectrum``, ``kronecker`` and ``low_rank_projector`` are pure functions of tensors.
"""
