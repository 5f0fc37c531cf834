"""Requests that wait together travel together: ``lane.py`` has the queue, ``combiner.py`` the choice."""
