"""``cached_property`` without a lock, as in Python since 3.12.

Python 3.11 holds a lock while it computes a property: one lock for all objects of the class. A child that is forked
while a thread of its parent computes a property inherits the held lock, and waits forever when it reads that property
of any object. Without the lock, two threads may compute a value at once; all readers get the value that was kept first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property  # noqa: TID251
else:

    class cached_property:  # noqa: N801
        """A property that is computed once for each object, and kept in its ``__dict__``."""

        def __init__(self, compute: Any) -> None:
            self._compute, self.__doc__ = compute, compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            return self if instance is None else instance.__dict__.setdefault(self._name, self._compute(instance))
