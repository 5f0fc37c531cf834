"""The boundary of a token on Google Cloud Storage: which objects it may reach, and how. Pure.

Google allows an access if both the server's own roles and one rule of the boundary allow it. A rule has roles, and a
condition in CEL: ``startsWith`` with the folder and its slash, so that ``a/`` does not open ``ab/``. A list request is
judged by the prefix that it asks for (https://cloud.google.com/iam/docs/downscoping-short-lived-credentials).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from metastore.serve.iceberg.folders import is_plain
from metastore.serve.iceberg.rights import READS, WRITES

__all__ = ["Rule", "rules"]

_LOCATION: Final = re.compile(r"gs://([^/]+)/(.+)", re.DOTALL)
_LONGEST: Final = 2048
"""How many characters Google accepts in a condition."""
_READ: Final = "inRole:roles/storage.objectViewer"
_WRITE: Final = "inRole:roles/storage.legacyBucketWriter"
"""A role that creates, replaces and deletes objects. It could also list the bucket, but the condition matches objects
only."""


@dataclass(frozen=True)
class Rule:
    """A rule of a boundary: it gives a role on a bucket where a condition holds."""

    resource: str
    role: str
    condition: str


def rules(location: str, rights: Collection[str], bucket: str) -> tuple[Rule, ...] | None:
    """Return the rules for a table's location.

    Return None if no boundary can name this location alone: it is not below the bucket, clients read its path
    differently, or it is too long. Return None too if the user has no right.
    """
    found = _LOCATION.fullmatch(location.rstrip("/"))
    if found is None or found[1] != bucket or not is_plain(found[2]):
        return None
    folder = found[2] + "/"
    objects = f"resource.name.startsWith({_literal(f'projects/_/buckets/{bucket}/objects/{folder}')})"
    listed = f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith({_literal(folder)})"
    resource = f"//storage.googleapis.com/projects/_/buckets/{bucket}"
    made = []
    if READS in rights:
        made.append(Rule(resource, _READ, f"{objects} || {listed}"))
    if WRITES in rights:
        made.append(Rule(resource, _WRITE, objects))
    return tuple(made) if made and all(len(rule.condition) <= _LONGEST for rule in made) else None


def _literal(text: str) -> str:
    """Return a text as a string of CEL, with its quotes and backslashes escaped."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
