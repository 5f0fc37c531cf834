"""Every public method of a store and of what it gives, with odd values for each parameter, one after the other.

The methods are found by looking, so that a new one is tried by itself. Where one needs an argument whose name is new,
its test says so: give it a good one in ``surface.py``.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.surface import METHODS, THINGS, Method, good, grow
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
        if "Place" not in str(parameter.annotation):  # of a file that cannot be opened Python's own errors say it best
            raise
    except TypeError:
        if not callable(value) and parameter.kind is not _REST:  # the caller's own function raised it
            raise
    assert len(message.splitlines()) == 1
    message.encode()  # it can be shown
