"""The Iceberg REST protocol, on the catalog of :mod:`metastore.pyiceberg`."""
