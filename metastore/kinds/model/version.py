"""The version of a model: an owned row, named by its number."""

from __future__ import annotations

from collections.abc import Mapping

from metastore.kinds.entity import Owned
from metastore.kinds.field import doc_field
from metastore.kinds.kind import OwnedKind
from metastore.kinds.model.document import clean_aliases, clean_uris
from metastore.plain import read_only

__all__ = ["MODEL_VERSION", "ModelVersion"]


class ModelVersion(Owned):
    """A version of a model: its URIs, and the aliases that point to it."""

    uris: Mapping[str, str] = doc_field(clean_uris, decode=read_only)
    aliases: tuple[str, ...] = doc_field(clean_aliases, default=(), decode=tuple)

    @property
    def number(self) -> int:
        """The number of the version, which counts from 1."""
        return int(self.record.name)


MODEL_VERSION = OwnedKind("model_version", ModelVersion, "model")
