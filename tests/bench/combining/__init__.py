"""Requests that wait together, beside peers in the same arrangement: so many processes, so many threads in each.

``python -m tests.bench.combining [--short] [--length SECONDS] [--turns N] [--only ARRANGEMENT]``
"""
