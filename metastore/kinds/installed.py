"""Kinds that installed packages bring, for programs that import none of them: the command line.

A package names the module that declares its kinds in its pyproject.toml:

    [project.entry-points."metastore.kinds"]
    acme = "acme.kinds"
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from metastore.errors import InvalidArgument

__all__ = ["GROUP", "load_installed_kinds"]

GROUP: Final = "metastore.kinds"


def load_installed_kinds() -> None:
    """Import what is named under the entry points "metastore.kinds". Raises InvalidArgument for what cannot be."""
    for found in entry_points(group=GROUP):
        try:
            found.load()
        except Exception as error:
            message = f"the kinds of {found.value} cannot be loaded: {error}; repair or remove their package"
            raise InvalidArgument(message) from error
