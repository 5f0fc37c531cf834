"""Benchmarks: programs, not tests. ``python -m tests.bench`` runs all of them.

Each prints a table and writes ``build/bench/NAME.json``, one flat object of name: number. A
figure that misses its bar is reported as seen and fails nothing.
"""
