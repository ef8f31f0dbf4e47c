"""Methods with a quadratic penalty on parameters: EWC, SI, MAS and MUC-MAS.

``penalty`` is the penalty they share. Importances come from ``per_sample_grads``, taken in one
``importance_pass`` over a finished task; ``fisher`` is the Fisher information for EWC.
"""
