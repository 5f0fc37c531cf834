"""``python -m metastore``: the command line."""

from __future__ import annotations

from metastore.cli import main

if __name__ == "__main__":
    main()
