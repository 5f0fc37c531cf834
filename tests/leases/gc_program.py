"""A server as far as gc goes: ``python -m tests.leases.gc_program URL TTL LOG``; the log has each begin and end."""

import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import metastore as ms
from metastore.serve.gc import Collector

url, ttl, log = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
ending = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: ending.set())


def note(what: str) -> None:
    with log.open("a") as lines:
        lines.write(f"{what}\n")


with ms.open(url) as store:
    collect = store.gc

    def gc(**options: Any) -> Any:
        note("begin")
        try:
            return collect(**options)
        finally:
            note("end")

    store.gc = gc  # type: ignore[method-assign]
    with Collector(store, timedelta(0), every=0.05, ttl=ttl):
        ending.wait()
