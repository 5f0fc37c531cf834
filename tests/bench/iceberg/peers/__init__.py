"""Measure this project's Iceberg REST server beside others on the same PostgreSQL."""
