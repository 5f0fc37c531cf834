"""How long `import metastore` takes, against `import sqlalchemy`; each in a fresh interpreter."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.bench.core.setting import Setting
from tests.bench.timing import interleaved, ratios

__all__ = ["measure"]

HEAVY = ("pyspark", "pandas", "pyarrow", "numpy")
PROGRAM = """import time, sys, json
start = time.perf_counter()
import {module}
taken = time.perf_counter() - start
print(json.dumps([taken, sum(name in sys.modules for name in {heavy!r})]))"""


def _taken(module: str) -> list[float]:
    program = PROGRAM.format(module=module, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def measure(setting: Setting) -> None:
    """Compare the import itself: the start of the interpreter would only hide a difference."""
    found = interleaved(
        {"ours": lambda: _taken("metastore")[0], "sqlalchemy": lambda: _taken("sqlalchemy")[0]}, setting.runs + 6
    )
    setting.figures.record("import_vs_sqlalchemy", ratios(found["ours"], found["sqlalchemy"]))
    setting.figures.record("import_ms", [1000 * s for s in found["ours"]])
    setting.figures.record("import_sqlalchemy_ms", [1000 * s for s in found["sqlalchemy"]])
    setting.figures.record("import_heavy_modules", [_taken("metastore")[1]])
