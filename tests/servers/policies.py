"""What a policy of IAM allows, as its documentation says: for statements such as our session policies have.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["allows"]

_PART = re.compile(r"\$\{([*?$])\}|(\$\{)|([*?])|(.)", re.DOTALL)


def allows(policy: str, action: str, resource: str, **context: str) -> bool:
    """Whether a statement allows an action on a resource. ``context``: of the request, such as ``prefix``.

    Nothing is allowed by the way. A condition on what the request does not have is false.
    """
    for statement in json.loads(policy)["Statement"]:
        assert statement.keys() <= {"Effect", "Action", "Resource", "Condition"}, statement
        assert statement["Effect"] == "Allow"
        conditions = statement.get("Condition", {})
        assert conditions.keys() <= {"StringLike"}, conditions
        wanted = conditions.get("StringLike", {})
        if (
            any(_matches(one, action) for one in _listed(statement["Action"]))
            and any(_matches(one, resource) for one in _listed(statement["Resource"]))
            and all(_holds(context.get(key.removeprefix("s3:")), one) for key, one in wanted.items())
        ):
            return True
    return False


def _holds(value: str | None, wanted: Any) -> bool:
    return value is not None and any(_matches(one, value) for one in _listed(wanted))


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _matches(pattern: str, text: str) -> bool:
    """Whether a pattern means a text: ``*`` and ``?`` are wild, ``${*}`` is a star; a variable is what nobody knows."""
    return re.fullmatch(_PART.sub(_as_regex, pattern), text, re.DOTALL) is not None


def _as_regex(part: re.Match[str]) -> str:
    literal, variable, wild, char = part.groups()
    if variable:
        return ".*"  # at its worst: the attacker chose the value
    if wild:
        return ".*" if wild == "*" else "."
    return re.escape(literal or char)
