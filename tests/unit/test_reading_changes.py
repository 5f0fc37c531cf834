"""Changes as plain JSON: there and back for each of every kind; what a client gets wrong is named."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import metastore as ms
from metastore.kinds.change import EntityChange
from metastore.kinds.function import changes as function_changes
from metastore.kinds.model import changes as model_changes
from metastore.kinds.model.changes import RemoveAlias, SetAlias, SetLatestVersion
from metastore.kinds.registry import KINDS
from metastore.kinds.table import changes as table_changes
from metastore.kinds.view import changes as view_changes
from metastore.leases.changes import LeaseHolder
from tests.contract.boards import AddPanel, SetOwner
from tests.strategies import columns_of, comments, names, texts, types

paths = names.filter(lambda n: "." not in n and "`" not in n) | st.lists(names, min_size=1, max_size=3).map(tuple)
filled = texts.filter(lambda text: bool(text.strip()))
some_types = st.sampled_from(("int", "string", "decimal(10,2)", "list<int>"))
places = st.lists(filled, max_size=2).map(tuple)
implementations = st.builds(
    ms.Implementation,
    st.sampled_from(("sql", "java", "python")),
    filled,
    runtime=st.none() | st.sampled_from(("spark", "trino")),
    handler=comments,
    jars=places,
    files=places,
    archives=places,
    properties=st.dictionaries(filled, texts, max_size=2),
)
signatures = st.lists(some_types, max_size=3).map(tuple)


@st.composite
def _definitions(draw: st.DrawFn) -> ms.Definition:
    parameters = [ms.Column(c.name, c.type, comment=c.comment) for c in draw(columns_of(some_types, max_size=3))]
    returns = draw(some_types | columns_of(some_types, max_size=2))
    kept = draw(st.lists(implementations, max_size=2, unique_by=lambda one: (one.language, one.runtime)))
    return ms.Definition(tuple(parameters), returns, tuple(kept))


index_columns = st.lists(names.filter(lambda n: "." not in n and "`" not in n), min_size=1, unique=True).map(tuple)
STRATEGIES: dict[type[EntityChange], st.SearchStrategy[Any]] = {
    ms.SetComment: st.builds(ms.SetComment, comments),
    ms.SetProperty: st.builds(ms.SetProperty, filled, texts)
    | st.builds(ms.SetProperty, filled, texts, expected=comments),
    ms.RemoveProperty: st.builds(ms.RemoveProperty, filled),
    ms.AddColumn: st.builds(
        ms.AddColumn,
        paths,
        types,
        nullable=st.booleans(),
        default=comments,
        comment=comments,
        after=st.none() | st.just(ms.FIRST) | names,
        auto_increment=st.booleans(),
    ),
    ms.RenameColumn: st.builds(ms.RenameColumn, paths, names),
    ms.DropColumn: st.builds(ms.DropColumn, paths),
    ms.RetypeColumn: st.builds(ms.RetypeColumn, paths, types),
    ms.MoveColumn: st.builds(ms.MoveColumn, paths, st.just(ms.FIRST) | names),
    ms.SetColumnComment: st.builds(ms.SetColumnComment, paths, comments),
    ms.SetColumnDefault: st.builds(ms.SetColumnDefault, paths, comments),
    ms.SetColumnNullable: st.builds(ms.SetColumnNullable, paths, st.booleans()),
    ms.SetAutoIncrement: st.builds(ms.SetAutoIncrement, paths, st.booleans()),
    ms.AddIndex: st.builds(ms.AddIndex, names, index_columns, type=st.sampled_from(("primary", "unique"))),
    ms.DropIndex: st.builds(ms.DropIndex, names),
    ms.SetLocation: st.builds(ms.SetLocation, comments),
    ms.SetFormat: st.builds(ms.SetFormat, comments),
    ms.SetRepresentation: st.builds(ms.SetRepresentation, names, filled),
    ms.RemoveRepresentation: st.builds(ms.RemoveRepresentation, names),
    ms.SetDefaultCatalog: st.builds(ms.SetDefaultCatalog, comments),
    ms.SetDefaultSchema: st.builds(ms.SetDefaultSchema, comments),
    ms.SetUri: st.builds(ms.SetUri, names, filled),
    ms.RemoveUri: st.builds(ms.RemoveUri, names),
    ms.AddDefinition: st.builds(ms.AddDefinition, _definitions()),
    ms.DropDefinition: st.builds(ms.DropDefinition, signatures),
    ms.AddImplementation: st.builds(ms.AddImplementation, signatures, implementations),
    ms.SetImplementation: st.builds(ms.SetImplementation, signatures, implementations),
    ms.DropImplementation: st.builds(ms.DropImplementation, signatures, st.just("sql"), runtime=st.none() | filled),
    ms.SetAllowedValues: st.builds(ms.SetAllowedValues, st.lists(filled, max_size=3, unique=True).map(tuple)),
    ms.SetContent: st.builds(ms.SetContent, st.dictionaries(filled, texts | st.integers(), max_size=3)),
    ms.SetEnabled: st.builds(ms.SetEnabled, st.booleans()),
    ms.SetSupports: st.builds(ms.SetSupports, st.sampled_from(((), ("table",), ("table", "schema")))),
    ms.SetTemplate: st.builds(
        ms.SetTemplate,
        st.fixed_dictionaries({"executable": filled}, optional={"arguments": st.lists(texts), "class_name": comments}),
    ),
    ms.StartJob: st.builds(
        ms.StartJob, texts, st.integers(), st.integers(), dead_worker=comments, dead_token=st.integers()
    ),
    ms.FinishJob: st.builds(ms.FinishJob, texts, st.integers(), st.integers(), texts, st.none() | st.integers(), texts),
    ms.CancelJob: st.builds(ms.CancelJob, st.integers()),
    ms.SetExternalId: st.builds(ms.SetExternalId, comments),
    SetLatestVersion: st.builds(SetLatestVersion, st.integers(1, 99)),
    SetAlias: st.builds(SetAlias, names, st.integers(1, 99)),
    RemoveAlias: st.builds(RemoveAlias, names),
    LeaseHolder: st.builds(LeaseHolder, comments, comments),
    AddPanel: st.builds(AddPanel, texts, texts),
    SetOwner: st.builds(SetOwner, texts),
}


def test_every_change_of_every_kind_is_among_them() -> None:
    modules = (table_changes, view_changes, function_changes, model_changes)
    there = {c for m in modules for _, c in inspect.getmembers(m, inspect.isclass) if issubclass(c, EntityChange)}
    public = {
        c for c in (getattr(ms, name) for name in ms.__all__) if isinstance(c, type) and issubclass(c, EntityChange)
    }
    of_kinds = {c for kind in KINDS.values() if not isinstance(kind, ms.Kind) for c in kind.changes}
    base = {EntityChange, function_changes._ForDefinition}
    assert (there | public | of_kinds) - base <= set(STRATEGIES)


@pytest.mark.parametrize("cls", STRATEGIES, ids=lambda c: c.__name__)
@given(data=st.data())
def test_there_and_back(cls: type[EntityChange], data: st.DataObject) -> None:
    change = data.draw(STRATEGIES[cls])
    sent = json.loads(json.dumps(change.to_dict()))
    assert ms.change_from_dict(sent) == change
    assert ms.changes_from_list([sent, sent]) == (change, change)
    assert ms.change_from_dict(sent).to_dict() == change.to_dict()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"change": "AddColumn", "path": "a"}, "the field 'type' is missing"),
        ({"change": "AddColumn", "path": "a", "type": "int", "nulable": True}, "no field 'nulable'"),
        ({"change": "AddColumn", "path": "a", "type": 5}, "the field 'type' is a string, not 5"),
        ({"change": "AddColumn", "path": "a", "type": "int", "nullable": "yes"}, "'nullable' is true or false"),
        ({"change": "AddColumn", "path": "a", "type": "int", "nullable": 1}, "the field 'nullable' is true or false"),
        ({"change": "AddColumn", "path": 7, "type": "int"}, "the field 'path' is a string or a list"),
        ({"change": "AddColumn", "path": ["a", 7], "type": "int"}, r"the field 'path\[1\]' is a string, not 7"),
        ({"change": "AddIndex", "name": "i", "columns": ["a"], "type": "hash"}, "'type' is 'primary' or 'unique'"),
        ({"change": "SetAlias", "alias": "a", "number": True}, "the field 'number' is an integer"),
        ({"change": "SetProperty", "key": "k"}, "the field 'value' is missing"),
        ({"change": "SetProperty", "key": "k", "value": "v", "expected": 1}, "'expected' is a string or null"),
        ({"change": "AddDefinition", "definition": {"returns": 5}}, "'definition.returns' is a string or a list"),
        (
            {"change": "AddDefinition", "definition": {"parameters": [{"name": "a"}]}},
            r"the field 'definition.parameters\[0\].type' is missing",
        ),
        (
            {"change": "AddImplementation", "parameters": [], "implementation": {"language": "sql", "body": 1}},
            "the field 'implementation.body' is a string, not 1",
        ),
        ({"change": "DropDefinition", "parameters": "int"}, "the field 'parameters' is a list"),
        ({"change": "tests.AddPanel", "name": "p"}, "the field 'query' is missing"),
        ({"path": "a"}, "the field 'change' is the name of a change"),
        ({"change": None}, "the field 'change' is the name of a change"),
        ({"change": ["AddColumn"]}, "the field 'change' is the name of a change"),
        ({"change": "AddColum", "path": "a"}, "such as 'AddColumn', not 'AddColum'"),
        ({"change": "UnknownChange", "fields": []}, "the field 'change' is the name of a change"),
        ("AddColumn", "a change is an object"),
        (None, "a change is an object"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(given: Any, named: str) -> None:
    with pytest.raises(ms.InvalidArgument, match=named):
        ms.change_from_dict(given)
    with pytest.raises(ms.InvalidArgument, match=r"changes\[1\]: .*" + named):
        ms.changes_from_list([{"change": "SetComment", "text": None}, given])


@pytest.mark.parametrize("given", [{"change": "SetComment", "text": "a"}, "text", None, 5])
def test_changes_are_a_list(given: Any) -> None:
    with pytest.raises(ms.InvalidArgument, match="changes are a list"):
        ms.changes_from_list(given)


def test_what_is_left_out_has_its_usual_value() -> None:
    assert ms.change_from_dict({"change": "AddColumn", "path": "a", "type": "int"}) == ms.AddColumn("a", "int")
    assert ms.change_from_dict({"change": "AddDefinition", "definition": {}}) == ms.AddDefinition(ms.Definition())


@given(
    st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=5), max_size=4)
)
def test_any_object_is_a_change_or_invalid(given: dict[str, Any]) -> None:
    for tag in ("AddColumn", "AddIndex", "AddDefinition", "DropImplementation", "Replace", "an implementation"):
        try:
            found = ms.change_from_dict({**given, "change": tag})
        except ms.InvalidArgument:
            continue
        assert isinstance(found, EntityChange)


class _Text(str):
    """A text of a caller's own class, as some libraries give it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


def test_a_subclass_of_str_is_its_characters() -> None:
    """In the tag, the names of fields, and at any depth."""
    given: dict[str, Any] = {
        _Text("change"): _Text("SetProperty"),
        _Text("key"): _Text("owner"),
        _Text("value"): _Text("ada"),
    }
    change = ms.change_from_dict(given)
    assert change == ms.SetProperty("owner", "ada")
    assert all(type(value) is str for value in change.to_dict().values())
    column = ms.change_from_dict({"change": "AddColumn", "path": _Text("id"), "type": _Text("long")})
    assert column == ms.change_from_dict({"change": "AddColumn", "path": "id", "type": "long"})
