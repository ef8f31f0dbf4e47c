"""Texts: tokenizers, tables of texts, the published sets of intents, splits of token ids.

Readers return a `raw.RawTexts` and know nothing of tokens or torch, as those of pictures.
"""
