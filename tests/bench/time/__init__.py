"""Measure the past, the feed, and Spark on the catalog."""
