"""One lease and many processes, some of which are killed or stopped at any moment. The long form: make soak-leases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.leases.counter import Counter, TooOld
from tests.leases.many import run

pytestmark = pytest.mark.postgres


@pytest.mark.only_whole
def test_killed_and_stopped(postgres_url: str, tmp_path: Path) -> None:
    """Tokens grow by one, nothing is committed under an old one, and the counter outside is exact."""
    report = run(postgres_url, tmp_path, processes=8, acquisitions=300, every=0.8, number=6, limit=90.0)
    print(report.figures)
    assert report.wrong == []
    assert report.figures["acquisitions"] >= 300
    assert report.figures["takeover"] >= 1
    assert report.figures["counted outside"] > 200


@pytest.mark.parametrize("checks", [True, False])
def test_the_counter(tmp_path: Path, checks: bool) -> None:
    """The negative control: without its check of the token it is wrong, and it is found to be."""
    counter = Counter(tmp_path / "counter", checks=checks)
    late = counter.get(1)
    counter.put(3, counter.get(3) + 1)
    if checks:
        with pytest.raises(TooOld):
            counter.put(1, late + 1)
    else:
        counter.put(1, late + 1)
    assert (counter.wrong() == []) is checks
