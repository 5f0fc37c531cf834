"""The error of a crawl that was interrupted: it names the data sets that were not written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["Interrupted"]

_SHOWN: Final = 5


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended the crawl. Every commit stays; ``missing`` are the locations that were not written.

    Next step: crawl again. The next crawl writes the rest.
    """

    def __init__(self, written: int, missing: Sequence[str]) -> None:
        self.written, self.missing = written, tuple(missing)
        named = ", ".join(self.missing[:_SHOWN])
        more = f" and {len(self.missing) - _SHOWN} more" if len(self.missing) > _SHOWN else ""
        left = f"; not yet: {named}{more}; crawl again to do the rest" if self.missing else ""
        super().__init__(f"{written} of {written + len(self.missing)} data sets were written{left}")
