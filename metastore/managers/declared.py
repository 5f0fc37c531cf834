"""The manager of a kind that a caller declared; see :class:`metastore.kinds.declared.Kind`."""

from __future__ import annotations

from typing import Any, cast

from metastore.kinds.declared import DeclaredEntity
from metastore.managers.manager import Manager
from metastore.managers.options import CREATE_OPTIONS, CreateOptions, shows_options
from metastore.names import Path


class DeclaredManager(Manager[DeclaredEntity]):
    """The manager of one declared kind."""

    @shows_options(CreateOptions)
    def create(self, path: Path, **fields: Any) -> DeclaredEntity:
        """Create an entity from the fields of its kind.

        Raises EntityAlreadyExists, EntityNotFound, NotInUse, and InvalidArgument for a field or value that the kind
        does not allow.
        """
        options = {name: fields.pop(name) for name in list(fields) if name in CREATE_OPTIONS}
        return self._create(path, fields, cast(CreateOptions, options))
