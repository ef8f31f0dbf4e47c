"""Several processes: sums over ranks, and parameters of which a rank holds some rows (FSDP2).

All calls of ``torch.distributed`` in the core are here. Collectives say that every rank must call.
"""
