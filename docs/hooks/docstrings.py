"""What Griffe, which reads the source for the API reference, does to every docstring."""

import sys
from pathlib import Path
from typing import Any

from griffe import Extension, Object

sys.path.insert(0, str(Path(__file__).parent))  # Griffe loads this file alone
from fences import fenced


class Fences(Extension):
    """Put fences around what Markdown would take for quotations and paragraphs."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called once per function, class and module."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
