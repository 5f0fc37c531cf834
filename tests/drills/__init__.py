"""Fail-over drills: PostgreSQL under Patroni and etcd, what can happen to them, and witnesses of what it did."""
