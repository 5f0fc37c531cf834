"""List what each release of Gravitino can read: objects of relations, and privileges.

Gravitino fails when it reads any other object or privilege.

The source is Gravitino's ``MetadataObject.Type`` and ``Privilege.Name`` in the tags v1.0.0 to v1.3.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Release", "can_hold", "privilege_in", "release_of"]

Release = tuple[int, int]

_NEW_TABLES: Final = (((1, 3), "view_version_info"), ((1, 2), "function_meta"), ((1, 1), "table_version_info"))
"""A table that came with each release."""
_OBJECTS: Final[dict[str, Release]] = {
    **dict.fromkeys(("metalake", "catalog", "schema", "fileset", "table", "topic", "column", "role", "model"), (1, 0)),
    **dict.fromkeys(("tag", "policy", "job", "job_template"), (1, 1)),
    "view": (1, 2),
    "function": (1, 3),
}
"""The first release where objects of a kind have owners, tags, policies and privileges; users and groups never do."""
_PRIVILEGES: Final[dict[str, Release]] = {
    **dict.fromkeys(("create_tag", "apply_tag", "create_policy", "apply_policy"), (1, 1)),
    **dict.fromkeys(("register_job_template", "use_job_template", "run_job"), (1, 1)),
    **dict.fromkeys(("create_view", "select_view"), (1, 2)),
    **dict.fromkeys(("register_function", "execute_function", "modify_function"), (1, 3)),
}
"""The first release of each privilege that 1.0 does not have."""
_OLD_NAMES: Final = {"register_model": "create_model", "link_model_version": "create_model_version"}
"""Privileges that have another name in 1.0, which all releases read."""


def release_of(has: Callable[[str], bool]) -> Release:
    """Return the release of a database; ``has`` tells whether it has a table."""
    return next((release for release, table in _NEW_TABLES if has(table)), (1, 0))


def can_hold(release: Release, kind: str) -> bool:
    """Whether a release can read relations of objects of a kind."""
    return kind in _OBJECTS and release >= _OBJECTS[kind]


def privilege_in(release: Release, privilege: str) -> str | None:
    """Return the name of a privilege in a release; None if the release does not know it."""
    if release < _PRIVILEGES.get(privilege, release):
        return None
    return _OLD_NAMES.get(privilege, privilege) if release < (1, 1) else privilege
