"""Requests that wait together travel together."""
