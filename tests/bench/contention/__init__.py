"""Contention: the same change by many processes at once, under several policies.

``python -m tests.bench.contention [--full] [--quick] [--only NAME] [--length SECONDS] [--docs]``
"""
