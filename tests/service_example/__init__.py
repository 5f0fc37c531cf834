"""The example service of docs/examples/catalog_service, in real processes, under load."""
