"""What each method changes in each preset: one TOML file per method, ``NAME.toml``; no code.

A method without a file runs with the general values of the preset and its own defaults. A section
is named after a preset, or after several of them; stronger sections come later::

    [all]        every preset
    [published]  paper, official and half
    [official]   official and half
    [cpu]        both versions of cpu
    [paper]  [half]  [cpu-2]  [quick]

A section holds the tables of a configuration: ``options`` (the method's own), ``optim``, ``model``.
``[SECTION.on.BENCHMARK]`` holds for one benchmark and is stronger than ``[SECTION]``, weaker than
the next section. ``extends = "other-method"`` at the top takes over another file first. TOML has no
None: as in every configuration file of nscl, ``"none"`` stands for it where an option may be None.

``nscl.training.config.presets`` reads these files. ``tests/golden`` holds the resulting values:
a changed value is another run with another name.
"""
