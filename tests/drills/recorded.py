"""Make series for promtool of the metrics that clients wrote down in a drill: ``python -m tests.drills.recorded``.

``recorded.json`` has those of two drills, and tests/docs/test_alerts.py lets the rules judge them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.drills.clients import SCRAPES

_RECORDED: Final = Path(__file__).with_name("recorded.json")
_CLIENTS: Final = ("p1", "leased", "consumer")
"""A writer, a lease cache, and a reader of the feed."""
Series = dict[str, str]


def _named_in(expression: str) -> set[str]:
    """Return the names of the metrics in an expression."""
    return set(re.findall(r"metastore_\w+", expression))


def _series_of(folder: Path, names: set[str]) -> Series:
    """Return the series with these names of a drill's record, as promtool reads them: a value for each scrape."""
    series: Series = {}
    for client in _CLIENTS:
        scrapes = [_scrape(line) for line in (folder / "metrics" / f"{client}.jsonl").read_text().splitlines()]
        for key in dict.fromkeys(key for scrape in scrapes for key in scrape):
            name, labels = key
            if name in names:
                told = ",".join(f'{label}="{value}"' for label, value in (("instance", client), *labels))
                series[f"{name}{{{told}}}"] = " ".join(
                    f"{scrape[key]:g}" if key in scrape else "_" for scrape in scrapes
                )
    return series


def _scrape(line: str) -> Mapping[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {(name, tuple(sorted(labels.items()))): float(value) for name, labels, value in json.loads(line)}


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.drills.recorded", description=__doc__)
    parser.add_argument("away", type=Path, help="the record of a drill in which no server led for some time (--keep)")
    parser.add_argument("quiet", type=Path, help="the record of the drill quiet")
    parser.add_argument("rules", type=Path, help="alerts.yml: what it names is taken")
    chosen = parser.parse_args()
    names = _named_in(chosen.rules.read_text())
    told: dict[str, Any] = {"scrapes": SCRAPES}
    for drill in ("away", "quiet"):
        folder = getattr(chosen, drill)
        told[drill] = {
            "kind": json.loads((folder / "run.json").read_text())["kind"],
            "series": _series_of(folder, names),
        }
    _RECORDED.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
