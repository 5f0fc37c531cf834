"""Requests that wait together travel together. :mod:`metastore.combine.lane` says how, ``combiner.py`` which ones."""
