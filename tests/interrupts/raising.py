"""Raise an error in the calling thread, at one line or instruction of some files."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

__all__ = ["Raising", "uncollected"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage in the block, in any thread.

    The collector runs within whatever allocates, and calls what others left to be called at their end: a pool of an
    earlier test closes its connections. An error there is not the call's: Python prints it and goes on.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Raising:
    """Raises an error in the thread that calls ``run``, when it reaches the ``at``-th line of the files in ``code``.

    Not between a ``with`` block and the call of its ``__exit__``: there the interpreter lets no interrupt in.
    """

    def __init__(
        self, code: Collection[str], at: int, error: type[BaseException], *, instructions: bool = False
    ) -> None:
        self.code, self.left, self.error = code, at, error
        self.event = "opcode" if instructions else "line"

    def run(self, call: Callable[[], Any]) -> Any:
        """Call it; return what it returns. ``left`` is 0 if the error was raised."""
        with uncollected():
            sys.settrace(self._begin)
            try:
                return call()
            finally:
                sys.settrace(None)

    def _begin(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in self.code:
            return None
        frame.f_trace_opcodes = self.event == "opcode"
        return self._step

    def _step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == self.event and self.left > 0 and frame.f_lasti not in _ends_of_blocks(frame.f_code):
            self.left -= 1
            if not self.left:
                raise self.error
        return self._step


@lru_cache(maxsize=4096)
def _ends_of_blocks(code: CodeType) -> frozenset[int]:
    """Return the instructions that call an ``__exit__`` with three times None, and those between it and the block."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in ("CACHE", "PRECALL")]
    found = set[int]()
    for n, step in enumerate(steps):
        if step.opname == "CALL" and n >= 3 and all(_is_none(one) for one in steps[n - 3 : n]):
            first = n - 3
            while steps[first - 1].opname in ("NOP", "SWAP"):
                first -= 1
            found.update(range(steps[first].offset, step.offset + 1))
    return frozenset(found)


def _is_none(step: dis.Instruction) -> bool:
    return step.opname in ("LOAD_CONST", "LOAD_COMMON_CONSTANT") and step.argval is None
