"""Spark reads what the catalog says."""
