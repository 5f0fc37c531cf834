"""Find pgbouncer, or install it: ``python tests/setup/pgbouncer.py``.

Looks on PATH and in the folders of system programs. Where it is missing, root on Debian gets it with apt-get; others
get one line that says how. Nothing fails without it: the tests that need a pooler are skipped then.

Stands alone (standard library only), as its siblings do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["HINT", "find_pgbouncer"]

HINT = "no pgbouncer, so that the tests behind a pooler are skipped: apt-get install pgbouncer"


def find_pgbouncer() -> Path | None:
    """Return the program, or None."""
    search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    found = shutil.which("pgbouncer", path=search)
    return Path(found) if found else None


def install() -> None:
    """Install pgbouncer where we may: as root, on Debian. RUNLEVEL=1 keeps Debian from starting its service."""
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        return
    print("Some tests run behind pgbouncer: installing it with apt-get", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", "pgbouncer"]):
        subprocess.run([apt, "-q", *words], env=environment, stdout=sys.stderr, check=False)


def main() -> int:
    """Find or install pgbouncer; 1 when there is none."""
    if find_pgbouncer() is None:
        install()
    if find_pgbouncer() is None:
        print(HINT, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
