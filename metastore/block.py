"""A ``with`` block that knows whether it runs, whatever interrupts it.

An interrupt (Ctrl-C, a soft time limit) may be raised at the first line of ``__exit__``, and at the last one of
``__enter__``. So code at the end of a block cannot be what ends it. Here the interpreter does: it keeps what it calls
at the end of a block on the stack of the frame that runs the block, and drops it when the block is left, in whatever
way. A block runs as long as that object exists. So what a block takes, such as a turn, counts only while
:attr:`Block.runs`. An interrupt may skip the rest of its ``end``; the next block that takes the same makes up for it.

Frames that a traceback keeps alive keep their variables, and not their stacks.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any
from weakref import ref

__all__ = ["Block"]


class Block:
    """Base of context managers that are used once, by a ``with`` statement (an ExitStack refuses them)."""

    __slots__ = ("_called_at_the_end",)
    _called_at_the_end: ref[partial[None]]

    def __enter__(self) -> Any:
        """Begin; what is taken from now on counts while the block runs."""
        raise NotImplementedError

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the block in order. An interrupt may keep this from being called."""
        raise NotImplementedError

    @property
    def __exit__(self) -> partial[None]:  # noqa: PLE0302, PYI036  (what is called at the end is what it returns)
        # The interpreter looks __exit__ up once, before it calls __enter__. A bound method would not do: the
        # interpreter drops it before it calls its function, but keeps any other callable until the call has ended.
        at_the_end = partial(self.end)
        self._called_at_the_end = ref(at_the_end)
        return at_the_end

    @property
    def runs(self) -> bool:
        """Whether the block runs."""
        return self._called_at_the_end() is not None
