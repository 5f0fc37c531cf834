"""What a credential access boundary of Google allows, as its documentation says: for boundaries such as ours.

https://cloud.google.com/iam/docs/downscoping-short-lived-credentials, and the strings of CEL:
https://github.com/google/cel-spec/blob/master/doc/langdef.md
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["allows"]

_LITERAL = r"'((?:[^'\\\n]|\\.)*)'"
_NAME = re.compile(rf"resource\.name\.startsWith\({_LITERAL}\)")
_LIST = re.compile(rf"api\.getAttribute\('storage\.googleapis\.com/objectListPrefix', ''\)\.startsWith\({_LITERAL}\)")
_BOTH = re.compile(rf"{_NAME.pattern}(?: \|\| {_LIST.pattern})?")
_ROLES = {
    "inRole:roles/storage.objectViewer": {"get", "list"},
    "inRole:roles/storage.legacyBucketWriter": {"create", "delete", "list"},
}
"""The permissions of these roles on objects."""


def allows(boundary: dict[str, Any], permission: str, bucket: str, name: str) -> bool:
    """Whether a rule allows a permission on an object; for ``list``, on a prefix."""
    assert boundary.keys() == {"accessBoundary"}
    assert boundary["accessBoundary"].keys() == {"accessBoundaryRules"}
    for rule in boundary["accessBoundary"]["accessBoundaryRules"]:
        assert rule.keys() == {"availableResource", "availablePermissions", "availabilityCondition"}
        assert rule["availabilityCondition"].keys() == {"expression"}
        there = rule["availableResource"] == f"//storage.googleapis.com/projects/_/buckets/{bucket}"
        given = any(permission in _ROLES[role] for role in rule["availablePermissions"])
        if there and given and _holds(rule["availabilityCondition"]["expression"], permission, bucket, name):
            return True
    return False


def _holds(expression: str, permission: str, bucket: str, name: str) -> bool:
    found = _BOTH.fullmatch(expression)
    assert found is not None, f"not an expression that this reads: {expression}"
    place = f"projects/_/buckets/{bucket}"  # a list is a request to the bucket
    resource, listed = (place, name) if permission == "list" else (f"{place}/objects/{name}", "")
    prefixes = [None if text is None else re.sub(r"\\(.)", r"\1", text) for text in found.groups()]
    assert prefixes[0] is not None
    return resource.startswith(prefixes[0]) or (prefixes[1] is not None and listed.startswith(prefixes[1]))
