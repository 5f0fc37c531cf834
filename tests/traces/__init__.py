"""Histories of real repositories, replayed as metadata operations."""
