"""Every public method of a store and of what it gives, with odd values for each parameter, one after the other.

The methods are found by looking, so that a new one is tried by itself. Where one needs an argument whose name is new,
its test says so: give it a good one in ``surface.py``.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.surface import METHODS, THINGS, Method, good, grow, of_another_database
from tests.bad_input.test_odd_values import DEEP, FIXED, HUGE, Liar, Unwritable

_REST = inspect.Parameter.VAR_KEYWORD
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_FEW: list[Any] = [
    *(None, True, HUGE, -HUGE, 2**63, float("nan"), b"x", "", "a\x00b", "\ud800", Liar("x\ud800"), object()),
    *(Unwritable(), [], {"k": DEEP}, [HUGE], iter(())),
]
"""What drivers of databases stumble over."""
Opened = Callable[[], ms.Store]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grown") / "a.db"
    with ms.open(f"sqlite:///{path}") as store:
        grow(store)
    return path


@pytest.mark.parametrize("method", METHODS, ids=str)
class TestOddValues:
    @pytest.fixture(autouse=True)
    def _elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some odd values are good names of files."""
        monkeypatch.chdir(tmp_path)

    @pytest.mark.one_in(3)
    def test_in_memory(self, method: Method) -> None:
        for parameter in method.parameters:
            with ms.open("memory://", principal="tester", deadline=5.0) as store:
                grow(store)
                for value in FIXED:
                    _try(method, store, parameter, value)

    def test_in_a_file(self, method: Method, grown: Path, tmp_path: Path) -> None:
        shutil.copy(grown, tmp_path / "a.db")
        with ms.open(f"sqlite:///{tmp_path / 'a.db'}", principal="tester", deadline=5.0) as store:
            for parameter in method.parameters:
                for value in _FEW:
                    _try(method, store, parameter, value)
            assert store.verify() == []


def test_an_unknown_keyword_is_refused() -> None:
    """It may be a known one with a slip of the pen: then the call would do something else."""
    odd, taken = inspect.Parameter("opertion_id", _REST), []
    with ms.open("memory://") as store:
        grow(store)
        for method in METHODS:
            call = _call(replace(method, parameters=(*method.parameters, odd)), store, odd, ms.new_operation_id())
            before = store.position()
            with suppress(TypeError, ms.InvalidArgument):
                _to_the_end(call())
                taken.append(str(method))
            assert store.position() == before, method
    assert taken == []


IDENTIFIED = [
    (method, one)
    for method in METHODS
    for one in method.parameters
    if one.name == "operation_id" and method.owner not in THINGS
]


@pytest.mark.parametrize(("method", "own"), IDENTIFIED, ids=[str(method) for method, _ in IDENTIFIED])
def test_two_calls_with_ids_and_each_of_them_again(method: Method, own: inspect.Parameter) -> None:
    """The second may find nothing to do, and what it returns is kept too. A repeat returns what its call did."""
    with ms.open("memory://", principal="tester", deadline=5.0) as store:
        grow(store)
        ids = (ms.new_operation_id(), ms.key("second"))
        first = [_came(_call(method, store, own, one)) for one in ids]
        assert [_came(_call(method, store, own, one)) for one in ids] == first


def _opened(option: str, value: Any) -> None:
    options: dict[str, Any] = {option: value}
    ms.open("memory://", **options).close()


TAKING = [
    (method, one)
    for method in METHODS
    for one in method.parameters
    if "Target" in str(one.annotation) or "Entity" in str(one.annotation) or "Catalog" in str(one.annotation)
]


@pytest.mark.parametrize(("method", "taking"), TAKING, ids=[f"{method} {one.name}" for method, one in TAKING])
def test_entities_of_another_database_are_refused(method: Method, taking: inspect.Parameter) -> None:
    """The other database has grown alike: the same paths, ids and versions."""
    options: dict[str, Any] = {"principal": "tester", "deadline": 5.0}
    with ms.open("memory://", **options) as store, ms.open("memory://", **options) as other:
        grow(store)
        grow(other)
        strange = of_another_database(method, taking, other)
        if strange is None:
            return
        call = _call(method, store, taking, strange)
        with pytest.raises(ms.InvalidArgument, match="another database"):
            _to_the_end(call())
        assert store.verify() == []


BY_NAME = {"store.allowed", "store.as_user"}
"""They ask for the rights of the user that has both the name and the id."""


@pytest.mark.parametrize("how", [{}, {"drafted": True, "written_at": 1}], ids=["call", "transaction"])
@pytest.mark.parametrize(("method", "taking"), TAKING, ids=[f"{method} {one.name}" for method, one in TAKING])
def test_a_lost_entity_is_not_the_one_that_has_its_id_now(
    method: Method, taking: inspect.Parameter, how: dict[str, Any]
) -> None:
    """Its commit was lost: a backup was put back, or another server took over. Nothing is read or written for it."""
    with ms.open("memory://", principal="tester", deadline=5.0) as store:
        grow(store)
        there = of_another_database(method, taking, store)
        if there is None or there.origin is None:
            return
        record = there.record._replace(created_at=1, modified_at=1)
        call = _call(method, store, taking, type(there)(record, replace(there.origin, run="earlier", **how)))
        before = store.position()
        # nothing is there to be dropped or detached; or it has changed since
        with suppress(ms.EntityNotFound, ms.VersionConflict):
            assert _to_the_end(call()) is False or str(method) in BY_NAME
        assert store.position() == before


ALONE: dict[str, Callable[[Any], Any]] = {
    "open": lambda value: ms.open(value).close(),
    **{f"open {name}": partial(_opened, name) for name in inspect.signature(ms.open).parameters if name != "url"},
    "migrate": ms.migrate,
    "restore": lambda value: ms.restore(value, BytesIO()),
    "restore from": lambda value: ms.restore("memory://", value),
    "key": ms.key,
    "the scope of a key": lambda value: ms.key("x", scope=value),
    "secret": ms.secret,
    "json_schema": ms.json_schema,
    "change_from_dict": ms.change_from_dict,
    "changes_from_list": ms.changes_from_list,
}
"""What needs no store, and the options of ``open``."""


@pytest.mark.parametrize("name", ALONE)
def test_odd_values_for_what_needs_no_store(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in FIXED:
        if name != "open" or value is not None:
            with suppress(ms.MetastoreError, *([OSError] if name == "restore from" else [])):
                ALONE[name](value)


def _call(method: Method, store: ms.Store, odd: inspect.Parameter, value: Any) -> Callable[[], Any]:
    """Return a call with one odd argument, and good ones where the method must have them."""
    arguments, named = list[Any](), dict[str, Any]()
    for one in method.parameters:
        is_odd, needed = one.name == odd.name, one.default is inspect.Parameter.empty and one.kind is not _REST
        if is_odd or needed:
            given = value if is_odd else good(method, one.name, store)
            if one.kind is _REST:
                named["odd"] = given
            elif one.kind is _KEYWORD or not needed:
                named[one.name] = given
            else:
                arguments.append(given)
    found = method.on(store)
    return lambda: found(*arguments, **named)


def _to_the_end(found: Any) -> Any:
    if isinstance(found, Iterator):
        return list(found)
    if hasattr(found, "__enter__"):
        with found:
            pass
    return found


def _came(call: Callable[[], Any]) -> Any:
    try:
        found = call()
    except ms.MetastoreError as error:
        return type(error)
    return found.to_dict() if hasattr(found, "to_dict") else found


def _try(method: Method, store: ms.Store, parameter: inspect.Parameter, value: Any) -> None:
    call = _call(method, store, parameter, value)
    message = "none"
    try:
        found = call()
        if isinstance(found, Iterator):
            list(islice(found, 3))
    except ms.MetastoreError as error:
        message = str(error)
    except OSError:
        # of a file that cannot be opened Python's own errors say it best
        if "FileOrName" not in str(parameter.annotation):
            raise
    except TypeError:
        if not callable(value) and parameter.kind is not _REST:  # the caller's own function raised it
            raise
    assert len(message.splitlines()) == 1
    message.encode()  # it can be shown
