"""Write the policy of a session on S3: which files its key may reach. Pure.

S3 allows an action if both the role and this policy allow it. The policy allows access below one location, by the
rights that a user has on the table: ``select_table`` reads and lists, ``modify_table`` writes and deletes. IAM takes
``*``, ``?`` and ``${`` in a policy for patterns and variables; ``${*}``, ``${?}`` and ``${$}`` are these characters
themselves (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, Final

from metastore.serve.iceberg.rights import READS, WRITES

__all__ = ["session_policy"]

_LONGEST: Final = 2048
"""How many characters the token service accepts (AssumeRole)."""
_READ: Final = ["s3:GetObject"]
_WRITE: Final = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_LOCATION: Final = re.compile(r"s3[an]?://([A-Za-z0-9][A-Za-z0-9._-]{1,254})/(.+)", re.DOTALL)
_SPECIAL: Final = re.compile(r"[*?]|\$(?=[{*?])")
"""The characters to escape. MinIO does not know these escapes, so a dollar is escaped only before an escaped
character."""


def session_policy(location: str, rights: Collection[str], role: str) -> str | None:
    """Return the policy for a table's location. ``role``: its ARN names the partition, such as ``aws-cn``.

    Return None if no policy is possible. Then the location is not below a bucket of S3, has an empty part, ``.`` or
    ``..``, or is too long; or the user has no right.
    """
    found = _LOCATION.fullmatch(location.rstrip("/"))
    if found is None or not rights or {"", ".", ".."}.intersection(found[2].split("/")):
        return None
    partition = role.split(":")[1]
    bucket = f"arn:{partition if partition.startswith('aws') else 'aws'}:s3:::{found[1]}"
    below = _SPECIAL.sub(r"${\g<0>}", found[2]) + "/*"  # with the slash, so that a/ does not open ab/
    actions = [*(_READ if READS in rights else []), *(_WRITE if WRITES in rights else [])]
    statements: list[dict[str, Any]] = [{"Effect": "Allow", "Action": actions, "Resource": f"{bucket}/{below}"}]
    if READS in rights:
        condition = {"StringLike": {"s3:prefix": below}}
        statements.append({"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket, "Condition": condition})
    # in ASCII, because the token service accepts no character above U+00FF
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    return text if len(text) <= _LONGEST else None
