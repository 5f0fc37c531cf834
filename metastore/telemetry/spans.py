"""A span for each operation that commits or settles, made by a hook: ``ms.open(url, hooks=[spans()])``.

The span is a child of the caller's current span. It begins when the call began. It has the operation's id, the number
of its attempts, and an event for each lost attempt, with the cause and the entity that it lost to. An operation that
ends in an error of the caller (the name is taken, or the entity does not exist) has no span: the caller's span has the
exception. A span shows the path that the call named, but no document, property or secret.
"""

from __future__ import annotations

from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from metastore.clock import SYSTEM, Clock
from metastore.errors import InvalidArgument
from metastore.retry.policy import Attempt, Hook

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["api", "spans"]

_SCOPE: Final = "metastore"


def api(module: str) -> Any:
    """Return a module of the OpenTelemetry API. Raises InvalidArgument where it is not installed."""
    try:
        return import_module(f"opentelemetry.{module}")
    except ImportError:
        raise InvalidArgument(
            "telemetry needs opentelemetry-api: pip install 'versioned-metastore[opentelemetry]'"
        ) from None


def spans(provider: TracerProvider | None = None, *, clock: Clock = SYSTEM) -> Hook:
    """Return a hook that makes spans with ``provider`` (None: the global one), for ``hooks=`` of ``ms.open``."""
    tracer = api("trace").get_tracer(_SCOPE, tracer_provider=provider)
    # a context variable, because the calls of two tasks take turns in one thread
    lost: ContextVar[list[tuple[int, Attempt]]] = ContextVar("metastore_lost")

    def hook(attempt: Attempt) -> None:
        now = clock.micros()
        events = [] if attempt.number == 1 else lost.get([])
        if attempt.cause is not None:
            lost.set([*events, (now, attempt)])
            return
        lost.set([])
        began = now - round(attempt.elapsed * 1_000_000)
        span = tracer.start_span(f"metastore {attempt.what.partition(' ')[0]}", start_time=began * 1000)
        for key, value in _attributes(attempt).items():
            span.set_attribute(key, value)
        for at, one in events:
            span.add_event("conflict", _conflict(one), timestamp=at * 1000)
        span.end(end_time=now * 1000)

    return hook


def _attributes(attempt: Attempt) -> dict[str, Any]:
    return {
        "metastore.call": attempt.what,
        "metastore.operation_id": str(attempt.operation_id),
        "metastore.attempts": attempt.number,
        "metastore.helped": attempt.helped,
    }


def _conflict(attempt: Attempt) -> dict[str, Any]:
    known = {"metastore.cause": attempt.cause, "metastore.wait_seconds": attempt.wait}
    return known if attempt.entity_id is None else {**known, "metastore.entity_id": attempt.entity_id}
