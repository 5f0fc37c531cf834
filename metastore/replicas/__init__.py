"""Reads from read replicas: they may be old, and say how old."""
