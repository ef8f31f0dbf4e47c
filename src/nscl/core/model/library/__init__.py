"""Layers of other libraries, recognised by how they look: the libraries are not imported.

Each module registers a recogniser. What one of them takes a layer for is compared with the layer's
own output in every pass, so a layer that only looks alike is an error and not a wrong memory.
"""

from nscl.core.model.library import experts as experts
from nscl.core.model.library import lookups as lookups
from nscl.core.model.library import projections as projections
