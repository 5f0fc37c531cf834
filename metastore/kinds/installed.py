"""Load the kinds of installed packages: the command line itself imports no such package.

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
    """Import the modules that the entry points "metastore.kinds" name. Raises InvalidArgument if that fails."""
    for entry in entry_points(group=GROUP):
        try:
            entry.load()
        except Exception as error:
            message = f"the kinds of {entry.value} cannot be loaded: {error}; repair or remove their package"
            raise InvalidArgument(message) from error
