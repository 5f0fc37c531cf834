"""All benchmarks, one after the other: ``python -m tests.bench [--quick]``."""

from __future__ import annotations

import subprocess
import sys

BENCHES = ("core", "contention")


def main() -> int:
    """Run each in a process of its own, with our arguments; return the first exit code that is not 0."""
    failed = 0
    for name in BENCHES:
        done = subprocess.run([sys.executable, "-m", f"tests.bench.{name}", *sys.argv[1:]], check=False)
        failed = failed or done.returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
