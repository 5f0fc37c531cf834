"""Run the command line, ``metastore``. :mod:`metastore.cli.app` has the commands, and is imported only when needed.

Exit codes: 0 done; 1 an error, or what a command reports in this way, such as a violation; 130 interrupted; 141 the
reader of the output, such as head, has closed it. ``lease run`` also has 75, 124, 126 and 127, ``serve`` has 2.
"""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line, and exit with its code."""
    _hold_standard_files()
    try:
        from metastore.cli.app import run  # noqa: PLC0415  (Ctrl-C during the import must be reported, too)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("metastore: interrupted\n")
        code = 130
    sys.exit(code)


def _hold_standard_files() -> None:
    """Occupy the numbers of a closed stdin, stdout or stderr: a file with such a number would get printed text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # os.open takes the lowest free number


def __getattr__(name: str) -> Any:
    if name == "app":
        from metastore.cli.app import app  # noqa: PLC0415

        return app
    raise AttributeError(name)
