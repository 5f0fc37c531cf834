"""The keywords that every mutation takes besides its own arguments. Each is declared once: type, default, meaning.

A method takes them as ``**options: Unpack[CallOptions]``. Its decorator :func:`shows_options` adds them to the
signature and the docstring, where ``help()``, ``inspect.signature`` and editors look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, cleandoc, signature
from types import MappingProxyType
from typing import Annotated, Any, Final, TypedDict, TypeVar, get_args, get_type_hints
from uuid import UUID

from metastore.arguments import known_keywords
from metastore.kinds.entity import Entity
from metastore.managers.attempts.create import IfExists
from metastore.operation.request import Call, Fencing

F = TypeVar("F", bound=Callable[..., Any])

_NO_OPTIONS = Call()


@dataclass(frozen=True)
class Option:
    """An option's meaning, and its value if the caller leaves it out."""

    text: str
    default: Any = None


class BulkOptions(TypedDict, total=False):
    """The options of ``create_many``: principal, reason, the deadline of each commit (seconds), and a lease.

    A commit under a lease requires its token. If the lease was taken over, broken or released, or has expired, nothing
    is written and LeaseLost is raised.
    """

    principal: Annotated[str | None, Option("who asks, as history and feed show it; the store's principal if left out")]
    deadline: Annotated[float | None, Option("how many seconds a commit may take; the store's deadline if left out")]
    lease: Annotated[Fencing | None, Option("the lease that must still be held when this is committed")]
    reason: Annotated[str | None, Option("why, for history and feed: one line of at most 200 characters")]


class CallOptions(BulkOptions, total=False):
    """The other options of every mutation: an operation id (or ``ms.key(…)``), under which it is applied at most once.

    A repeat with the same id, for as long as operations are kept, returns the first result, or
    raises the first error; with other arguments it raises OperationIdReused.
    """

    operation_id: Annotated[UUID | str | None, Option("under this id the call is applied at most once; see ms.key()")]


class CreateOptions(CallOptions, total=False):
    """The options of every create, besides the fields of its kind."""

    comment: Annotated[str | None, Option("a text for people")]
    properties: Annotated[Mapping[str, str], Option("strings by name", MappingProxyType({}))]
    if_exists: Annotated[IfExists, Option('"error", "return" or "replace" what has this name already', "error")]
    parent: Annotated[Entity | None, Option("the parent in hand; the path is then the bare name")]
    parents: Annotated[bool, Option("whether to create the schemas above that do not exist", False)]


def _declared(options: type) -> dict[str, Any]:
    """Return the annotated type of each option, including those of the base classes."""
    return get_type_hints(options, include_extras=True)


CALL_OPTIONS: Final = frozenset(_declared(CallOptions))
CREATE_OPTIONS: Final = frozenset(_declared(CreateOptions))
BULK_OPTIONS: Final = frozenset(_declared(BulkOptions))


def shows_options(options: type) -> Callable[[F], F]:
    """Return a decorator that adds ``options`` to a function's signature and docstring.

    The function itself stays as it is: a call costs nothing more. ``options`` is the TypedDict that the function's
    ``**`` parameter unpacks.
    """
    declared = {name: get_args(hint) for name, hint in _declared(options).items()}

    def show(function: F) -> F:
        own = signature(function)
        parameters = [p for p in own.parameters.values() if p.kind is not Parameter.VAR_KEYWORD]
        rest = [p for p in own.parameters.values() if p.kind is Parameter.VAR_KEYWORD and "Unpack" not in p.annotation]
        shown = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=option.default, annotation=hint)
            for name, (hint, option) in declared.items()
        ]
        vars(function)["__signature__"] = own.replace(parameters=[*parameters, *shown, *rest])
        lines = [f"    {name}: {option.text}" for name, (_, option) in declared.items()]
        function.__doc__ = "\n".join([cleandoc(function.__doc__ or ""), "", "Options of every such call:", *lines])
        return function

    return show


def call_from(options: Mapping[str, Any]) -> Call:
    """Return the call of options whose keywords are known."""
    given = map(options.get, ("principal", "deadline", "operation_id", "lease", "reason"))
    return Call(*given)


def call_of(options: CallOptions) -> Call:
    """Return the checked options of a call."""
    if not options:
        return _NO_OPTIONS
    known_keywords(options, CALL_OPTIONS)
    return call_from(options)
