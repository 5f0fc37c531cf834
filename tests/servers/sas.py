"""What a user delegation SAS of Azure allows, as its documentation says.

https://learn.microsoft.com/rest/api/storageservices/create-user-delegation-sas
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from urllib.parse import parse_qsl

__all__ = ["allows", "fields"]

_NEEDS = {"read": "r", "list": "l", "create": "c", "write": "w", "delete": "d", "rename": "m", "own": "o", "acl": "p"}
_SIGNED = (
    *("skoid", "sktid", "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "skdutid", "sduoid"),
    *("sip", "spr", "sv", "sr", "snapshot", "ses", "srh", "srq", "rscc", "rscd", "rsce", "rscl", "rsct"),
)
"""The fields of the string to sign, from version 2026-04-06, after the permissions, the times and the resource."""


def fields(sas: str) -> dict[str, str]:
    return dict(parse_qsl(sas, strict_parsing=True))


def allows(sas: str, key: str, operation: str, account: str, path: str, now: str) -> bool:
    """Whether the account lets this operation happen. ``path``: container and file. ``now``: as the fields write it.

    The service takes as many parts of the path as ``sdd`` says: the signature must hold for that directory.
    """
    said = fields(sas)
    assert (said["sr"], said["sks"]) == ("d", "b")
    assert said["sv"] >= "2026-04-06"
    container, *parts = path.split("/")
    directory = "/".join([container, *parts[: int(said["sdd"])]])
    begin = (said["sp"], said["st"], said["se"], f"/blob/{account}/{directory}")
    text = "\n".join([*begin, *(said.get(name, "") for name in _SIGNED)])
    signature = base64.b64encode(hmac.digest(base64.b64decode(key), text.encode(), hashlib.sha256)).decode()
    alive = said["st"] <= now < said["se"] and said["skt"] <= now < said["ske"]
    return signature == said["sig"] and alive and _NEEDS[operation] in said["sp"]
