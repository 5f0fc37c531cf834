"""Measure Iceberg commits, creates, lists and REST loads; PyIceberg's SQL catalog on the same databases beside them."""
