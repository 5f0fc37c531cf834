"""The kinds of entities: each is a file, or a folder, with its fields and its changes.

:mod:`metastore.kinds.registry` finds one by name.
"""
