"""Columns and their types."""
