"""Adapters are found by name, and nothing of a framework is imported before."""

import subprocess
import sys

import pytest

import nscl
import nscl.integrations

FRAMEWORKS = ("accelerate", "avalanche", "lightning", "peft", "pytorch_lightning", "transformers")


def test_importing_nscl_imports_no_framework() -> None:
    code = (
        "import sys, nscl; nscl.Memory; dir(nscl.integrations); nscl.integrations.resumable; "
        f"print([name for name in {FRAMEWORKS} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_adapter_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'keras'"):
        _ = nscl.integrations.keras
