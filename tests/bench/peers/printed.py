"""Every statement, script and transaction that the peers send, for who wants to judge them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import Console

from tests.bench.core.setting import CATALOG
from tests.bench.peers.contenders import CONTENDERS
from tests.bench.peers.in_database import TEXTS

__all__ = ["MESSAGES", "print_statements"]

MESSAGES = {
    "for_update": {
        "load": ["load"],
        "alter": ["BEGIN; lock_and_load", "write; COMMIT"],
        "create": ["create_it"],
        "drop": ["drop_it"],
        "rename": ["rename_it"],
    },
    "advisory": {
        "load": ["share; load"],
        "alter": ["BEGIN; node; load", "write; COMMIT"],
        "create": ["parent; create_it"],
        "drop": ["node; drop_it"],
        "rename": ["node; rename_it"],
    },
    "serializable": {
        "load": ["load"],
        "alter": ["BEGIN ISOLATION LEVEL SERIALIZABLE; load", "write; COMMIT"],
        **{verb: [f"BEGIN ISOLATION LEVEL SERIALIZABLE; {verb}_it; COMMIT"] for verb in ("create", "drop", "rename")},
    },
    "redis": {
        "load": ["LOCK", "load", "UNLOCK (not waited for)"],
        "alter": ["LOCK", "load", "write", "UNLOCK (not waited for)"],
        **{verb: ["LOCK", f"{verb}_it", "UNLOCK (not waited for)"] for verb in ("create", "drop", "rename")},
    },
    "etcd": {
        "load": ["LOCK", "load", "UNLOCK"],
        "alter": ["LOCK", "load", "write", "UNLOCK"],
        **{verb: ["LOCK", f"{verb}_it", "UNLOCK"] for verb in ("create", "drop", "rename")},
    },
    "zookeeper": {
        "load": ["LOCK", "load", "UNLOCK (not waited for)"],
        "alter": ["LOCK", "load", "write", "UNLOCK (not waited for)"],
        **{verb: ["LOCK", f"{verb}_it", "UNLOCK (not waited for)"] for verb in ("create", "drop", "rename")},
    },
    "treelock": {
        "load": ["load"],
        "alter": ["load", "write"],
        **{verb: [f"{verb}_it"] for verb in ("create", "drop", "rename")},
    },
}
"""By peer and operation: what is sent at once, in order, each waited for where nothing else is said."""

ZOOKEEPER = """LOCK: multi: create /tree/NODE/r- (sequential, ephemeral) for each node, w- for the exclusive one; with
      it, not waiting in between: getChildren /tree/NODE for each. Who is not first: exists (watched) on the one
      before, then getChildren again.
UNLOCK: multi: delete of these nodes."""


def print_statements(console: Console) -> None:
    """Print them, peer by peer."""
    for peer in MESSAGES:
        console.rule(f"{peer}: {CONTENDERS[peer]}", align="left")
        for text in _of(peer):
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def _of(peer: str) -> Iterator[str]:
    for verb, messages in MESSAGES[peer].items():
        yield f"{verb}: {' | '.join(messages)}"
    yield ""
    yield from _locks(peer)
    for name, text in TEXTS.get(peer, {**TEXTS["serializable"]}).items():
        yield f"-- {name}\n{text}\n"


def _locks(peer: str) -> Iterator[str]:
    if peer == "zookeeper":
        yield f"{ZOOKEEPER}\n"
    elif peer == "redis":
        from tests.bench.peers.redis_tree import LOCK, UNLOCK

        yield f"-- LOCK{LOCK}\n\n-- UNLOCK{UNLOCK}\n"
    elif peer == "etcd":
        from tests.bench.peers.etcd_tree import locking, unlocking

        nodes = (f"{CATALOG}.s0", f"{CATALOG}.s0.t0")
        yield f"-- LOCK\n{json.dumps(locking(nodes, 'HOLDER', '1', exclusive=True), indent=1)}\n"
        yield f"-- UNLOCK\n{json.dumps(unlocking(nodes, 'HOLDER', exclusive=True), indent=1)}\n"
