"""Null-space protection for any PyTorch model: mathematics in pure functions, hooks around it.

``memory.Memory`` puts the parts together; what users may import stands in ``nscl.__all__``. Folders
import downwards only (the contract "core: from memories down to matrices"), and torch and
safetensors are all that may be imported from outside.
"""
