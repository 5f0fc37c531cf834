"""A transaction gets through beside those who announce changes of the row that it writes."""

from __future__ import annotations

import threading

import metastore as ms
from tests.concurrency.checks import seed, violations

PATH = "lake.cat.s.t"


def test_it_withdraws_what_is_pending(url: str) -> None:
    seed(url, PATH)
    over = threading.Event()
    errors: list[BaseException] = []

    def announce(number: int) -> None:
        try:
            with ms.open(url) as store:
                for n in range(100_000):
                    if over.is_set():
                        return
                    store.tables.alter(PATH, ms.SetProperty(f"p{number}", str(n)))
        except BaseException as error:  # noqa: BLE001  (it is looked at below)
            errors.append(error)

    threads = [threading.Thread(target=announce, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    try:
        with ms.open(url, deadline=20.0) as store:
            for n in range(3):
                comment = str(n)
                store.run(lambda tx, c=comment: tx.tables.alter(PATH, ms.SetComment(c)))  # type: ignore[misc]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert errors == []
    with ms.open(url) as store:
        assert store.tables.load(PATH).comment == "2"
        assert store.stats().pending == 0
    assert violations(url) == []
