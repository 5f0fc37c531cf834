"""Spans and metrics for OpenTelemetry, read back with its own SDK."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import metastore as ms
from metastore.retry.policy import Attempt
from metastore.telemetry import observe, spans

SECRET = "hunter2-very-secret"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    found = TracerProvider()
    found.add_span_processor(SimpleSpanProcessor(exporter))
    return found


def test_each_operation_is_a_span_below_the_callers(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    with ms.open("memory://", hooks=[spans(provider)]) as store:
        store.metalakes.create("lake")
        with provider.get_tracer("caller").start_as_current_span("request") as parent:
            store.metalakes.alter("lake", ms.SetProperty("password", SECRET))
    create, alter, _ = exporter.get_finished_spans()
    assert (create.name, alter.name) == ("metastore create", "metastore alter")
    assert alter.parent is not None
    assert alter.parent.span_id == parent.get_span_context().span_id
    assert alter.attributes is not None
    assert alter.attributes["metastore.attempts"] == 1
    assert "lake" in str(alter.attributes["metastore.call"])
    assert alter.end_time is not None
    assert alter.start_time is not None
    assert alter.end_time >= alter.start_time
    assert SECRET not in "".join(span.to_json() for span in exporter.get_finished_spans())


def test_lost_attempts_are_events(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    hook = spans(provider)
    operation_id = ms.new_operation_id()
    hook(Attempt("alter table 'a'", operation_id, 1, "self", 0.01, 0.005, entity_id=7))
    hook(Attempt("alter table 'a'", operation_id, 2, "busy", 0.02, 0.0))
    hook(Attempt("alter table 'a'", operation_id, 3, None, 0.03, 0.0, helped=True))
    hook(Attempt("alter table 'a'", ms.new_operation_id(), 1, "self", 0.01, 0.005))  # it ends in an error, unseen
    hook(Attempt("load table 'b'", ms.new_operation_id(), 1, None, 0.01, 0.0))
    first, second = exporter.get_finished_spans()
    assert [(event.attributes or {})["metastore.cause"] for event in first.events] == ["self", "busy"]
    assert (first.events[0].attributes or {})["metastore.entity_id"] == 7
    assert (first.attributes or {})["metastore.helped"] is True
    assert second.events == ()


def test_counters_and_the_pool_are_observed(url: str) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with ms.open(url) as store:
        observe(store, provider, database="catalog")
        store.metalakes.create("lake")
        values = _values(reader)
    assert values["metastore.operations", "create", "self"] == 1
    assert values["metastore.pool", "size"] == 10
    provider.shutdown()


def _values(reader: InMemoryMetricReader) -> dict[tuple[str, ...], Any]:
    found = {}
    data = reader.get_metrics_data()
    assert data is not None
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            labels = dict(point.attributes or {})
            assert labels.pop("database") == "catalog"
            order = ("operation", "state", "cause", "decided")
            found[metric.name, *(str(labels[key]) for key in order if key in labels)] = getattr(point, "value", None)
    return found


def test_without_the_api_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ms.InvalidArgument, match=r"\[opentelemetry\]"):
        spans()
