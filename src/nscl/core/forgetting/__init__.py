"""How far a model has moved since the last ``remember``: outputs, parameters, uncounted rest.

Everything here compares a ``State`` with the model as it is now, and changes neither.
"""
