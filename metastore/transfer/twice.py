"""Find names of a file that become equal where the file is imported, because names are folded there.

It keeps in memory 16 bytes and an entry in a set for each entity whose name is folded.
"""

from __future__ import annotations

from hashlib import blake2b

from metastore.errors import InvalidArgument
from metastore.kinds.kind import to_json
from metastore.kinds.registry import kind_named
from metastore.names import fold, format_path
from metastore.transfer.chunks import Key, key_of, parent_key
from metastore.transfer.lines import EntityLine

__all__ = ["Twice"]


class Twice:
    """The names that were seen. ``folds``: the place of the file's first entity folds names."""

    def __init__(self, *, folds: bool) -> None:
        self._folds = folds
        self._folding = set[Key]()
        """The entities whose children's names are folded, because a catalog of the file folds them."""
        self._seen = set[bytes]()

    def check(self, line: EntityLine) -> None:
        """Note one more entity. Raises InvalidArgument if another entity has an equal name there."""
        folds = self._folds or parent_key(line) in self._folding
        below = bool(line.doc.get("fold_case")) if line.kind == "catalog" else folds
        if below and not self._folds and kind_named(line.kind).container:
            self._folding.add(key_of(line))
        if folds:
            self._note(line)

    def _note(self, line: EntityLine) -> None:
        parts = [*parent_key(line), line.family, fold(line.names[-1])]
        digest = blake2b(to_json(parts).encode(), digest_size=16).digest()
        if digest in self._seen:
            raise InvalidArgument(
                f"the file has {format_path(line.names)} twice: the catalog treats the two names as equal"
            )
        self._seen.add(digest)
