"""Every public method of a store and of its managers, with odd values for each parameter, one after the other."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

import metastore as ms
from tests.bad_input.surface import METHODS, Method, good, grow
from tests.bad_input.test_odd_values import FIXED

_MANY = inspect.Parameter.VAR_POSITIONAL
_ANY = inspect.Parameter.VAR_KEYWORD


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ms.Store]:
    folder = tmp_path_factory.mktemp("odd")
    url = "memory://" if request.param == "memory" else f"sqlite:///{folder / 'a.db'}"
    with ms.open(url, principal="tester", deadline=10.0) as store:
        yield store


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_odd_values_are_refused_in_our_words(store: ms.Store, method: Method) -> None:
    grow(store)
    for parameter in method.parameters:
        for value in FIXED:
            _try(method, store, _call(method, store, parameter, value), parameter, value)


def _call(method: Method, store: ms.Store, odd: inspect.Parameter, value: Any) -> Callable[[], Any]:
    """Return a call with one odd argument, and good ones where the method must have them."""
    arguments, named = list[Any](), dict[str, Any]()
    for one in method.parameters:
        needed = one.default is inspect.Parameter.empty and one.kind is not _ANY
        if one.name != odd.name and not needed:
            continue
        given = value if one.name == odd.name else good(method, one.name)
        if one.kind is _ANY:
            named["odd"] = given
        elif one.kind is inspect.Parameter.KEYWORD_ONLY or not needed:
            named[one.name] = given
        else:
            arguments.append(given)
    return lambda: method.on(store)(*arguments, **named)


def _try(method: Method, store: ms.Store, call: Callable[[], Any], parameter: inspect.Parameter, value: Any) -> None:
    try:
        found = call()
        if isinstance(found, Iterator):
            list(islice(found, 3))
    except ms.MetastoreError as error:
        message = str(error)
    except Exception as error:
        pytest.fail(f"{method}({parameter.name}={_shown(value)}) raised {type(error).__name__}: {error!s:.200}")
    else:
        return
    assert len(message.splitlines()) == 1
    message.encode()  # it can be shown


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80]
    except Exception:  # noqa: BLE001
        return type(value).__name__
