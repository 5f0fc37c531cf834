"""Faults of the short-lived keys: they open more, for longer, or for somebody else."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_KEYS"]

_TESTS = "tests/iceberg/test_vending.py"
_POLICY = "metastore/serve/iceberg/policy.py"
_STS = "metastore/serve/iceberg/sts.py"
_KEPT = "metastore/serve/iceberg/kept_keys.py"
_WAREHOUSES = "metastore/serve/iceberg/warehouses.py"

IN_KEYS: tuple[Fault, ...] = (
    Fault(
        "Keys: who staged a table gets one for its folder, whoever has the table now",
        "metastore/pyiceberg/catalog.py",
        "            if held:  #",
        "            if False:  #",
        f"{_TESTS} -k staged_a_table",
    ),
    Fault(
        "Keys: the policy of a/ opens ab/ too",
        _POLICY,
        'found[2]) + "/*"',
        'found[2]) + "*"',
        f"{_TESTS} -k stolen",
    ),
    Fault(
        "Keys: a star in a location is a pattern",
        _POLICY,
        '_SPECIAL.sub(r"${\\g<0>}", found[2])',
        "found[2]",
        f"{_TESTS} -k policy",
    ),
    Fault(
        "Keys: a session has no policy",
        _STS,
        "                Policy=scope,\n",
        "",
        f"{_TESTS} -k stolen",
    ),
    Fault(
        "Keys: a call that nobody waits for delays the next one",
        _KEPT,
        "if begun >= asked.wanted:",
        "if False:",
        f"{_TESTS} -k nobody_waits",
    ),
    Fault(
        "Keys: each user reads and writes",
        _WAREHOUSES,
        "rights = RIGHTS if staged else",
        "rights = RIGHTS if True else",
        f"{_TESTS} -k stolen",
    ),
    Fault(
        "Keys: the rights are those on another table, which has the name by now",
        _WAREHOUSES,
        "if pointer_of(table) is None or",
        "if False and",
        f"{_TESTS} -k takes_the_name",
    ),
    Fault(
        "Keys: a kept key is given to who lost a right",
        "metastore/serve/iceberg/short_lived.py",
        "tuple(sorted(rights)))",
        "())",
        f"{_TESTS} -k kept",
    ),
    Fault(
        "Keys: a key is kept for the whole of its life",
        _KEPT,
        "made.life / 2",
        "made.life",
        f"{_TESTS} -k kept",
    ),
    Fault(
        "Keys: clients get the server's own",
        "metastore/serve/iceberg/credentials.py",
        "for key, value in self._properties.items() if not isinstance(value, Secret)}",
        "for key, value in self.properties().items()}",
        f"{_TESTS} -k kept",
    ),
    Fault(
        "Keys: a client that renews gets none without the header",
        "metastore/serve/iceberg/protocol.py",
        "return tables.credentials(warehouses.vended(call, tables.named(call), place))",
        "asked = asks_for_credentials(call.headers)\n"
        "        return tables.credentials(warehouses.vended(call, tables.named(call), place) if asked else None)",
        f"{_TESTS} -k kept",
    ),
    Fault(
        "Keys: a request waits for the token service for as long as that takes",
        _KEPT,
        "config.result(_PATIENCE)",
        "config.result()",
        f"{_TESTS} -k refuses",
    ),
)
