"""What each method changes in each preset: one TOML file per method, ``NAME.toml``; no code.

docs/laboratory.md, "Settings", has the format; ``nscl.training.config.presets`` reads the files.
``tests/golden`` holds the resulting values: a changed value is another run with another name.
"""
