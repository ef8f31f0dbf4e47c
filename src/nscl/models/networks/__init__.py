"""The networks by name: for images a perceptron to a MobileNetV2, for texts transformers.

Each maps images or texts to features and has ``out_features``; heads are in `nscl.models.heads`.
A new one is a file here and an entry in `nscl.models.registry`.
"""
