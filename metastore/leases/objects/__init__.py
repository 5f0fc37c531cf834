"""Leases kept as objects in a bucket or a folder."""
