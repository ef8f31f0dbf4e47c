"""``python -m nscl``: the command line, also under torchrun."""

from nscl.cli import main

if __name__ == "__main__":
    main()
