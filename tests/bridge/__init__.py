"""Tests of the bridge from a lock tree."""
