"""Proximal rules: displacements since the last ``remember`` are shrunk by what old data use.

``plan`` is what an optimizer's protection follows, ``updates`` are its single steps, and
``shared_parameters`` takes those together that change one parameter. Only ``plan`` is imported from
outside.
"""
