"""The async store caches as the sync one does."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import pytest

import metastore as ms
from tests.cache.kept import LONG, lake

T = "lake.c.s.t"


@pytest.mark.parametrize("mode", ["validate", "lease"])
def test_reads_are_kept_and_still_true(postgres_url: str, mode: Literal["validate", "lease"]) -> None:
    lake(postgres_url)

    async def use() -> None:
        astore: Any = await ms.open_async(postgres_url, cache=ms.Cache(mode))
        with ms.open(postgres_url) as other:
            for n in range(3):
                ends = time.monotonic() + LONG
                hits = astore.cache.stats().hits
                while astore.cache.stats().hits == hits:
                    await asyncio.gather(*[astore.tables.load(T) for _ in range(4)])
                    assert time.monotonic() < ends
                await asyncio.to_thread(other.tables.alter, T, ms.SetComment(str(n)))
                assert (await astore.tables.load(T)).comment == str(n)
                assert (await astore.tables.alter(T, ms.SetComment(f"own {n}"))).comment == f"own {n}"
                assert (await astore.tables.load(T)).comment == f"own {n}"
            await astore.close()
            assert other.cache.members() == ()

    asyncio.run(use())
