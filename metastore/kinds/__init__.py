"""The kinds: a file of fields and changes each, or a folder. :mod:`metastore.kinds.registry` finds one by name."""
