"""Low-rank adapters beside remembered layers: other names, a place in the null space, frozen parts.

Nothing here knows the library that made an adapter; ``nscl.integrations`` does.
"""
