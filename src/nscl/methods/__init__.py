"""Continual-learning methods, one per file, on one interface; listing them needs no torch."""

from nscl.methods.registry import METHODS, MethodInfo, load_method, method_info

__all__ = ["METHODS", "MethodInfo", "load_method", "method_info"]
