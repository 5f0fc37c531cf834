"""The version of a model: an owned row, named by its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from metastore.kinds.entity import Owned
from metastore.kinds.kind import OwnedKind
from metastore.kinds.model.document import model_version_doc

__all__ = ["MODEL_VERSION", "ModelVersion"]


class ModelVersion(Owned):
    """A version of a model: where it is, and the aliases that point to it."""

    uris: Mapping[str, str]
    aliases: tuple[str, ...]

    doc_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"uris": MappingProxyType, "aliases": tuple}

    @property
    def number(self) -> int:
        return int(self.record.name)


MODEL_VERSION = OwnedKind("model_version", ModelVersion, new_doc=model_version_doc)
