"""Leases beside the locks of others: on PostgreSQL, SQLite and an S3 server, and Redis, etcd, ZooKeeper on loopback.

``python -m tests.bench.leases [--quick] [--only NAME] [--length SECONDS] [--turns N] [--docs]``
"""
