"""References without protection against forgetting: fine-tuning, joint, independent, frozen.

Every other method is compared with them (docs/methods.md, "Baselines").
"""
