"""The model: a series of versions, some of which have an alias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.kinds.entity import Entity
from metastore.kinds.kind import Kind
from metastore.kinds.model.document import model_doc, replace_model_doc

__all__ = ["MODEL", "Model"]


class Model(Entity):
    """A model. ``latest_version`` is the number of the version added last, 0 if there was none."""

    latest_version: int
    aliases: Mapping[str, int]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"latest_version": int, "aliases": MappingProxyType}


MODEL = Kind("model", "model", ("schema",), Model, new_doc=model_doc, replace_doc=replace_model_doc, since=2)
