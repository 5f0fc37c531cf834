"""The command line, ``metastore``. Nothing is imported until it is used; :mod:`metastore.cli.app` has the commands.

Exit codes: 0 done, 1 a user's error or a violation found, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line, and exit with its code."""
    try:
        from metastore.cli.app import run  # noqa: PLC0415  (an interrupt while it is imported is one too)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("metastore: interrupted\n")
        code = 130
    sys.exit(code)


def __getattr__(name: str) -> Any:
    if name == "app":
        from metastore.cli.app import app  # noqa: PLC0415

        return app
    raise AttributeError(name)
