"""Spark masters: how many clients a master can run at once, and whether it answers.

Both are checked before the start.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Final

from metastore.errors import BackendUnavailable, InvalidArgument

__all__ = ["check_master", "slots"]

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?")
_CLUSTER: Final = re.compile(r"local-cluster\[ *(\d+) *, *(\d+) *, *\d+ *\]")
_KNOWN: Final = re.compile(r"(spark|k8s|yarn)\b")
_MOST_HERE: Final = 1000
"""How many clients a local master may run."""
_PATIENCE: Final = 5.0
"""Seconds in which a master must accept a connection."""


def slots(master: str) -> int | None:
    """Return how many tasks ``master`` runs at once; None: its URL does not show it."""
    if matched := _LOCAL.fullmatch(master):
        return (os.cpu_count() or 1) if matched[1] == "*" else int(matched[1] or 1)
    if matched := _CLUSTER.fullmatch(master):
        return int(matched[1]) * int(matched[2])
    return None


def check_master(master: str, clients: int) -> None:
    """Raise InvalidArgument or BackendUnavailable if a master cannot run ``clients`` clients at once."""
    room = slots(master)
    if room is None and not _KNOWN.match(master):
        raise InvalidArgument(
            f"{master!r} is not a Spark master: write local[{clients}], spark://host:7077, yarn or k8s://…"
        )
    if room is not None and room < clients:
        raise InvalidArgument(f"{master} runs {room} of {clients} clients at once: --master local[{clients}]")
    if _LOCAL.fullmatch(master) and clients > _MOST_HERE:
        raise InvalidArgument(
            f"one machine runs at most {_MOST_HERE:,} clients, each a process: for {clients:,} take a cluster, --master"
        )
    if master.startswith("spark:"):
        _check_there(master)


def _check_there(master: str) -> None:
    """Raise BackendUnavailable unless one of the masters in the URL accepts a connection."""
    hosts = [_address(part, master) for part in master.removeprefix("spark://").split(",")]
    reasons = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), _PATIENCE).close()
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
        else:
            return
    raise BackendUnavailable(
        f"the Spark master {master} does not answer ({'; '.join(reasons)}); start it, or check the URL"
    )


def _address(part: str, master: str) -> tuple[str, int]:
    host, _, port = part.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InvalidArgument(f"{master!r} is not a Spark master: write spark://host:7077")
    return host.strip("[]"), int(port)
