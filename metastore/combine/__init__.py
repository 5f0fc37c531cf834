"""Requests that wait at the same time are sent together: ``lane.py`` has the queue, ``combiner.py`` the choice."""
