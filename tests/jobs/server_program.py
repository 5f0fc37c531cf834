"""A process with workers for jobs: ``python -m tests.jobs.server_program URL TTL``; it says when it works."""

import sys
import time

import metastore as ms
from metastore.jobs import WorkerPool

with ms.open(sys.argv[1]) as store, WorkerPool(store, workers=4, ttl=float(sys.argv[2])):
    print("working", flush=True)
    while True:
        time.sleep(1)
