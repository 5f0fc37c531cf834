"""The REST API of Apache Gravitino 1.3, on the store."""
