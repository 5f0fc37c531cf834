"""Let a fork wait until no other thread imports a module of this library.

Many modules are imported by the call that needs them first. If another thread does that at the moment of a fork, the
child has a half-imported module, and its lock stays held: the child's own first use would wait for ever.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

__all__ = ["finish_imports"]


def finish_imports() -> None:
    """Wait for the imports that are under way in other threads."""
    for name, module in list(sys.modules.items()):
        if name.startswith("metastore.") and getattr(getattr(module, "__spec__", None), "_initializing", False):
            with suppress(Exception):  # the other thread gets the error
                import_module(name)


os.register_at_fork(before=finish_imports)
