"""Writes beside those of the tree before the past was kept: what each version pays for it."""

from __future__ import annotations

import subprocess

from tests.bench.before.trees import COUNTS, ROOT, Side, tree_of
from tests.bench.core.setting import Setting
from tests.bench.timing import ratios

__all__ = ["measure"]

_VERBS = ("alter", "create")
_TURNS = 30
_FIRST = "*v0006_time.py"
"""The migration that came with the past."""


def measure(setting: Setting) -> None:
    """Let a client of each tree work in turns. Above 1, this tree is faster."""
    now = Side(ROOT, setting.durable, setting.closing)
    before = Side(tree_of(_before()), setting.durable, setting.closing)
    for turn in range(-2, _TURNS):
        for verb in _VERBS:
            for side in (now, before) if turn % 2 else (before, now):
                side.turn(verb, COUNTS[verb], keep=turn >= 0)
    for verb in _VERBS:
        setting.figures.record(f"{verb}_vs_before", ratios(now.rates[verb], before.rates[verb]))
        setting.figures.record(f"{verb}_cpu_vs_before", ratios(now.cpu[verb], before.cpu[verb]))


def _before() -> str:
    """Return the commit before that migration."""
    words = ["git", "log", "--diff-filter=A", "--format=%H", "--", _FIRST]
    return f"{subprocess.check_output(words, cwd=ROOT, text=True).split()[-1]}^"
