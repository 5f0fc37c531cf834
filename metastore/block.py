"""A ``with`` block that knows whether it still runs, even after an interrupt.

An interrupt (Ctrl-C, a soft time limit) may be raised at the first line of ``__exit__``, or at the last line of
``__enter__``. So code at the end of a block cannot reliably mark its end. Here the interpreter does. It keeps the
object that it calls at the end of a block on the stack of the frame that runs the block. It drops the object when the
block is left, in any way. A block runs as long as this object exists. So anything that a block takes, such as a turn,
is valid only while :attr:`Block.runs`. An interrupt may skip the rest of a block's ``end``; the next block that takes
the same thing repairs that.

Frames that a traceback keeps alive keep their variables, but not their stacks.
"""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any
from weakref import ref

__all__ = ["Block"]


class Block:
    """The base of context managers for one use by a ``with`` statement (an ExitStack refuses them)."""

    __slots__ = ("_called_at_the_end",)
    _called_at_the_end: ref[partial[None]]

    def __enter__(self) -> Any:
        """Begin the block. Anything that it takes from now on is valid while the block runs."""
        raise NotImplementedError

    def end(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the block in the normal way. After an interrupt, this is perhaps not called."""
        raise NotImplementedError

    @property
    def __exit__(self) -> partial[None]:  # noqa: PLE0302, PYI036  (the interpreter calls the object that this returns)
        # The interpreter looks __exit__ up once, before it calls __enter__. A bound method would not suffice: the
        # interpreter drops it before it calls the function, but keeps any other callable until the call has ended.
        at_the_end = partial(self.end)
        self._called_at_the_end = ref(at_the_end)
        return at_the_end

    @property
    def runs(self) -> bool:
        """Whether the block runs."""
        return self._called_at_the_end() is not None
