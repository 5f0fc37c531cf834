"""The async classes have what the sync ones have: names, arguments, docstrings, types."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import metastore as ms
from metastore.aio import derive, surface
from tests.aio.stubs import STUB, generated

PAIRS = [(sync, getattr(surface, f"Async{sync.__name__}", None)) for sync in derive._CLASSES]
SYNC = [(sync, cls) for sync, cls in PAIRS if cls is not None and sync.__name__ != "Lost"]


def test_the_types_are_those_of_the_sync_classes() -> None:
    """Else run ``python -m tests.aio``."""
    assert generated() == STUB.read_text(encoding="utf-8")


@pytest.mark.parametrize(("sync", "derived"), SYNC, ids=[sync.__name__ for sync, _ in SYNC])
def test_each_method_is_there_with_its_signature_and_docstring(sync: type, derived: type) -> None:
    for name, method in inspect.getmembers(sync, inspect.isfunction):
        if name[0] == "_" or name in derive.INTERNAL:
            continue
        ours = getattr(derived, name)
        assert inspect.signature(ours) == inspect.signature(method)
        assert ours.__doc__ == method.__doc__


@pytest.mark.parametrize(("sync", "derived"), SYNC, ids=[sync.__name__ for sync, _ in SYNC])
def test_each_is_a_coroutine_unless_the_rules_say_otherwise(sync: type, derived: type) -> None:
    for name, method in inspect.getmembers(sync, inspect.isfunction):
        if name[0] == "_" or name in derive.INTERNAL or not method.__module__.startswith("metastore."):
            continue
        returns = method.__annotations__["return"]
        other = name in derive.AT_ONCE or derive.is_iterator(returns) or returns in derive.OPENINGS
        assert inspect.iscoroutinefunction(getattr(derived, name)) is not other, name


def test_plain_json_needs_no_await() -> None:
    assert [cls for _, cls in SYNC if inspect.iscoroutinefunction(getattr(cls, "to_dict", None))] == []


def test_each_manager_of_a_store_has_an_async_class() -> None:
    with ms.open("memory://") as store:
        managers = [value for name, value in vars(store).items() if name[0] != "_"]
        assert len(managers) > 10
        assert [value for value in managers if type(value) not in derive._CLASSES] == []


USER = """
import metastore as ms
from metastore.aio.surface import AsyncStore, AsyncTransaction

async def use(astore: AsyncStore) -> None:
    reveal_type(await astore.tables.load("a.b.c.d"))
    async for view in astore.views.list("a.b.c"):
        reveal_type(view)
    async def count(tx: AsyncTransaction) -> int:
        table = await tx.tables.load("a.b.c.d")
        return table.version
    reveal_type(await astore.run(count))
    async with astore.leases.acquire("x") as lease:
        reveal_type(lease)
        await astore.tables.alter("a.b.c.d", ms.SetComment("x"), lease=lease)
    reveal_type(await astore.leases.acquire("x"))
    reveal_type(astore.bind(principal="ann"))
    await astore.tables.alter(5)
    astore.tabels
"""
REVEALED = ["kinds.table.kind.Table", "kinds.view.kind.View", '"int"', "AsyncLease", "AsyncLease", "AsyncStore"]


@pytest.mark.only_whole
@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
def test_a_users_program_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "user.py"
    file.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(STUB.parents[2] / "pyproject.toml")]
    command += ["--cache-dir", str(STUB.parents[2] / ".mypy_cache"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=STUB.parents[2])
    revealed = [line.replace("builtins.", "") for line in done.stdout.splitlines() if "Revealed type" in line]
    assert [word in line for word, line in zip(REVEALED, revealed, strict=True)] == [True] * len(REVEALED), done.stdout
    errors = [line for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 2, done.stdout
    assert "[arg-type]" in errors[0]
    assert 'has no attribute "tabels"' in errors[1]


def test_without_greenlet_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    with pytest.raises(ms.InvalidArgument, match=r"versioned-metastore\[async\]"):
        ms.open_async("memory://").send(None)


def test_importing_the_library_brings_neither_asyncio_nor_greenlet() -> None:
    program = (
        "import sys, metastore; print([m for m in ('asyncio', 'greenlet', 'metastore.aio.core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_of_it_can_be_pickled() -> None:
    async def main() -> None:
        async with await ms.open_async("memory://") as astore:
            for thing in (astore, astore.tables):
                with pytest.raises(TypeError, match="URL"):
                    pickle.dumps(thing)

    import asyncio

    asyncio.run(main())
    assert isinstance(surface, ModuleType)


def test_internal_methods_are_not_there() -> None:
    """Looked up all the same, as a debugger does, they led to the async object again, without end."""
    with ms.open("memory://") as store:
        for manager in (store.partitions, store.statistics, store.crawls, store.sources, store.tags):
            ours = derive._wrapped(manager, None)  # type: ignore[arg-type]
            assert not [name for name in derive.INTERNAL if hasattr(ours, name) or name in dir(ours)]
