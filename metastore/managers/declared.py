"""The manager of a kind that others declared; see :class:`metastore.kinds.declared.Kind`."""

from __future__ import annotations

from typing import Any, cast

from metastore.kinds.entity import Entity
from metastore.managers.manager import Manager
from metastore.managers.options import CALL_OPTIONS, CreateOptions
from metastore.names import Path

__all__ = ["DeclaredManager"]

_OPTIONS = CreateOptions.__annotations__ | CALL_OPTIONS


class DeclaredManager(Manager[Entity]):
    """Everything that a manager does, for one declared kind."""

    def create(self, path: Path, **fields: Any) -> Entity:
        """Create an entity: the fields of its kind, and what every ``create`` takes.

        Raises EntityAlreadyExists, EntityNotFound, NotInUse, and InvalidArgument for what the kind does not allow.
        """
        options = {name: fields.pop(name) for name in list(fields) if name in _OPTIONS}
        return self._create(path, fields, cast(CreateOptions, options))
