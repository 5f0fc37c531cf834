"""One frozen mix of operations, by ours and by peers that guard the same rows with locks.

``python -m tests.bench.peers [--short] [--only NAME] [--length SECONDS] [--turns N] [--statements] [--docs]``
"""
