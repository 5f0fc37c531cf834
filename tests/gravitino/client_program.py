"""What a user of Gravitino's Python client does, against the server at the address given; run by the client's Python.

It imports nothing of this project, and ends with a failed assertion where the client sees something else.
"""

# mypy: ignore-errors
import sys
import time
from datetime import date

from gravitino import Catalog, Fileset, FilesetChange, GravitinoAdminClient, GravitinoClient, NameIdentifier
from gravitino.api.authorization.owner import Owner
from gravitino.api.authorization.privileges import Privileges
from gravitino.api.authorization.securable_objects import SecurableObjects
from gravitino.api.function.function_change import FunctionChange
from gravitino.api.function.function_definition import FunctionDefinitions
from gravitino.api.function.function_impl import FunctionImpl
from gravitino.api.function.function_param import FunctionParams
from gravitino.api.function.function_type import FunctionType
from gravitino.api.function.sql_impl import SQLImpl
from gravitino.api.job.job_handle import JobHandle
from gravitino.api.job.job_template_change import JobTemplateChange, ShellTemplateUpdate
from gravitino.api.job.shell_job_template import ShellJobTemplate
from gravitino.api.metadata_object import MetadataObject
from gravitino.api.metadata_objects import MetadataObjects
from gravitino.api.model_change import ModelChange
from gravitino.api.model_version_change import ModelVersionChange
from gravitino.api.rel.column import Column
from gravitino.api.rel.expressions.literals.literals import Literals
from gravitino.api.rel.expressions.transforms.transforms import Transforms
from gravitino.api.rel.partitions.partitions import Partitions
from gravitino.api.rel.table_change import TableChange
from gravitino.api.rel.types.types import Types
from gravitino.api.stats.statistic_values import StatisticValues
from gravitino.api.tag.tag_change import TagChange
from gravitino.exceptions.base import (
    CatalogInUseException,
    CatalogNotInUseException,
    FunctionAlreadyExistsException,
    InUseException,
    JobTemplateAlreadyExistsException,
    MetalakeAlreadyExistsException,
    NonEmptySchemaException,
    NoSuchFunctionException,
    NoSuchJobException,
    NoSuchJobTemplateException,
    NoSuchPartitionException,
    NoSuchSchemaException,
    NoSuchTableException,
    NotEmptyException,
    PartitionAlreadyExistsException,
)
from gravitino.namespace import Namespace

T = NameIdentifier.of("s", "t")


def raises(cls, call, *arguments):
    try:
        call(*arguments)
    except cls:
        return
    raise AssertionError(f"no {cls.__name__}")


def tables(client):
    catalog = client.create_catalog("cat", Catalog.Type.RELATIONAL, "hive", "a catalog", {"a": "b"})
    assert catalog.properties() == {"a": "b", "in-use": "true"}
    assert (client.list_catalogs(), [one.name() for one in client.list_catalogs_info()]) == (["cat"], ["cat"])
    catalog.as_schemas().create_schema("s", "a schema", {})
    assert catalog.as_schemas().list_schemas() == ["s"]
    nested = Types.StructType.of(Types.StructType.Field.nullable_field("x", Types.DecimalType.of(10, 2), "why"))
    columns = [Column.of("i", Types.IntegerType.get(), "an id", nullable=False), Column.of("n", nested)]
    made = catalog.as_table_catalog()
    table = made.create_table(T, columns, "a table", {"p": "q"})
    assert [one.data_type() for one in table.columns()] == [Types.IntegerType.get(), nested]
    assert (table.columns()[0].nullable(), table.audit_info().creator()) == (False, "anonymous")
    first = TableChange.ColumnPosition.first()
    changes = [
        TableChange.set_property("z", "1"),
        TableChange.add_column(["w"], Types.LongType.get(), comment="new", position=first),
    ]
    table = made.alter_table(T, TableChange.rename("u"), *changes)
    assert (table.name(), [one.name() for one in table.columns()]) == ("u", ["w", "i", "n"])
    raises(NoSuchTableException, made.load_table, T)
    raises(NoSuchSchemaException, made.load_table, NameIdentifier.of("none", "t"))
    raises(NonEmptySchemaException, catalog.as_schemas().drop_schema, "s", False)
    made.alter_table(NameIdentifier.of("s", "u"), TableChange.rename("t"))
    assert [one.name() for one in made.list_tables(Namespace.of("s"))] == ["t"]
    assert made.drop_table(NameIdentifier.of("s", "u")) is False
    return catalog


def disabled(client, catalog):
    raises(CatalogInUseException, client.drop_catalog, "cat")
    client.disable_catalog("cat")
    raises(CatalogNotInUseException, catalog.as_schemas().create_schema, "other", "", {})
    raises(NotEmptyException, client.drop_catalog, "cat")
    client.enable_catalog("cat")


def partitions(catalog):
    name = NameIdentifier.of("s", "parts")
    columns = [Column.of("day", Types.DateType.get())]
    table = catalog.as_table_catalog().create_table(name, columns, partitioning=[Transforms.identity(["day"])])
    day = Literals.date_literal(date(2025, 3, 4))
    made = table.add_partition(Partitions.identity("day=2025-03-04", [["day"]], [day], {"k": "v"}))
    assert (made.name(), made.properties()) == ("day=2025-03-04", {"k": "v"})
    raises(PartitionAlreadyExistsException, table.add_partition, made)
    assert table.list_partition_names() == ["day=2025-03-04"]
    assert [one.name() for one in table.list_partitions()] == ["day=2025-03-04"]
    raises(NoSuchPartitionException, table.get_partition, "none")
    assert [table.drop_partition("day=2025-03-04") for _ in range(2)] == [True, False]
    assert catalog.as_table_catalog().drop_table(name) is True


def statistics(catalog):
    there = catalog.as_table_catalog().load_table(T).supports_statistics()
    there.update_statistics({"custom-rows": StatisticValues.long_value(12)})
    assert [(one.name(), one.value().value()) for one in there.list_statistics()] == [("custom-rows", 12)]
    assert [there.drop_statistics(["custom-rows"]) for _ in range(2)] == [True, False]


def filesets(client):
    catalog = client.create_catalog("files", Catalog.Type.FILESET, "fileset", "", {"location": "s3://b/x"})
    catalog.as_schemas().create_schema("s", "", {})
    made = catalog.as_fileset_catalog()
    fileset = made.create_fileset(NameIdentifier.of("s", "f"), "c", Fileset.Type.MANAGED, None, {})
    assert fileset.storage_location() == "s3://b/x/s/f"
    changed = made.alter_fileset(NameIdentifier.of("s", "f"), FilesetChange.rename("g"), FilesetChange.remove_comment())
    assert (changed.name(), changed.comment()) == ("g", None)
    where = made.get_file_location(NameIdentifier.of("s", "g"), "/part/1")
    assert where == "s3://b/x/s/f/part/1"
    assert [made.drop_fileset(NameIdentifier.of("s", name)) for name in ("g", "g")] == [True, False]


def models(client):
    catalog = client.create_catalog("models", Catalog.Type.MODEL, "model", "", {})
    catalog.as_schemas().create_schema("s", "", {})
    made, name = catalog.as_model_catalog(), NameIdentifier.of("s", "m")
    assert made.register_model(name, "a model", {}).latest_version() == 0
    made.link_model_version(name, "s3://m/0", ["new"], "first", {})
    made.link_model_version(name, "s3://m/1", [], "second", {"k": "v"})
    assert made.list_model_versions(name) == [0, 1]
    assert [one.comment() for one in made.list_model_version_infos(name)] == ["first", "second"]
    assert made.get_model_version(name, 0).aliases() == ["new"]
    assert made.get_model_version_uri_by_alias(name, "new") == "s3://m/0"
    changed = made.alter_model_version(name, 1, ModelVersionChange.update_comment("2nd"))
    assert (changed.version(), changed.comment()) == (1, "2nd")
    assert made.delete_model_version_by_alias(name, "new") is True
    assert made.delete_model_version(name, 0) is False
    assert made.alter_model(name, ModelChange.rename("n")).name() == "n"


def governed(client, catalog):
    client.create_tag("pii", "personal", {"k": "v"})
    client.create_tag("gold", "", {})
    changed = client.alter_tag("pii", TagChange.update_comment("very personal"), TagChange.set_property("a", "b"))
    assert (changed.comment(), changed.properties()) == ("very personal", {"k": "v", "a": "b"})
    table = catalog.as_table_catalog().load_table(T)
    assert table.supports_tags().associate_tags(["pii", "gold"], []) == ["gold", "pii"]
    assert table.supports_tags().associate_tags([], ["gold"]) == ["pii"]
    assert [one.name() for one in table.supports_tags().list_tags_info()] == ["pii"]
    (there,) = client.get_tag("pii").associated_objects().objects()
    assert (there.full_name(), there.type()) == ("cat.s.t", MetadataObject.Type.TABLE)
    assert (client.list_tags(), client.delete_tag("gold"), client.delete_tag("gold")) == (["gold", "pii"], True, False)


def permitted(client):
    client.add_user("ann@corp.com")
    client.add_group("staff")
    on = SecurableObjects.of_catalog("cat", [Privileges.allow("USE_CATALOG")])
    role = client.create_role("reader", {"k": "v"}, [on])
    assert [one.full_name() for one in role.securable_objects()] == ["cat"]
    assert list(client.grant_roles_to_user(["reader"], "ann@corp.com").roles()) == ["reader"]
    assert list(client.get_user("ann@corp.com").roles()) == ["reader"]
    assert list(client.revoke_roles_from_user(["reader"], "ann@corp.com").roles()) == []
    assert (client.list_user_names(), client.list_group_names()) == (["ann@corp.com"], ["staff"])
    thing = MetadataObjects.of(["cat"], MetadataObject.Type.CATALOG)
    assert client.get_owner(thing).name() == "anonymous"  # who made it
    client.set_owner(thing, "ann@corp.com", Owner.Type.USER)
    assert client.get_owner(thing).name() == "ann@corp.com"
    assert (client.delete_role("reader"), client.remove_group("staff"), client.remove_group("staff")) == (
        True,
        True,
        False,
    )


def functions(client):
    catalog = client.load_catalog("cat").as_function_catalog()
    name, x = NameIdentifier.of("s", "plus"), FunctionParams.of("x", Types.IntegerType.get(), "a number")
    spark = SQLImpl.builder().with_runtime_type(FunctionImpl.RuntimeType.SPARK).with_sql("x + 1").build()
    trino = SQLImpl.builder().with_runtime_type(FunctionImpl.RuntimeType.TRINO).with_sql("x + 2").build()
    one = FunctionDefinitions.of([x], Types.IntegerType.get(), [spark])
    made = catalog.register_function(name, "adds one", FunctionType.SCALAR, True, [one])
    assert (made.name(), made.deterministic(), made.definitions()[0].impls()[0].sql()) == ("plus", True, "x + 1")
    raises(FunctionAlreadyExistsException, catalog.register_function, name, "", FunctionType.SCALAR, True, [one])
    changed = catalog.alter_function(name, FunctionChange.add_impl([x], trino), FunctionChange.update_comment("adds"))
    assert changed.comment() == "adds"
    assert [impl.sql() for impl in changed.definitions()[0].impls()] == ["x + 1", "x + 2"]
    changed = catalog.alter_function(name, FunctionChange.remove_impl([x], FunctionImpl.RuntimeType.SPARK))
    assert [impl.sql() for impl in changed.definitions()[0].impls()] == ["x + 2"]
    assert [one.name() for one in catalog.list_functions(Namespace.of("s"))] == ["plus"]
    assert [one.comment() for one in catalog.list_function_infos(Namespace.of("s"))] == ["adds"]
    assert (catalog.drop_function(name), catalog.drop_function(name)) == (True, False)
    raises(NoSuchFunctionException, catalog.get_function, name)


def ended(client, job):
    while client.get_job(job.job_id()).job_status() in (JobHandle.Status.QUEUED, JobHandle.Status.STARTED):
        time.sleep(0.05)
    return client.get_job(job.job_id()).job_status()


def jobs(client):
    template = (
        ShellJobTemplate.builder()
        .with_name("say")
        .with_comment("says it")
        .with_executable("/bin/sh")
        .with_arguments(["-c", "test {{word}} = hello"])
        .with_environments({"WORD": "{{word}}"})
        .build()
    )
    client.register_job_template(template)
    raises(JobTemplateAlreadyExistsException, client.register_job_template, template)
    assert client.get_job_template("say") == template
    assert [one.name for one in client.list_job_templates()] == ["say"]
    job = client.run_job("say", {"word": "hello"})
    assert ended(client, job) == JobHandle.Status.SUCCEEDED
    other = client.run_job("say", {"word": "bye"})
    assert ended(client, other) == JobHandle.Status.FAILED
    assert {one.job_id() for one in client.list_jobs("say")} == {job.job_id(), other.job_id()}
    raises(NoSuchJobTemplateException, client.run_job, "none", {})
    raises(NoSuchJobException, client.get_job, "job-0")
    update = ShellTemplateUpdate(new_executable="/bin/sleep", new_arguments=["60"])
    changes = [JobTemplateChange.rename("nap"), JobTemplateChange.update_template(update)]
    changed = client.alter_job_template("say", *changes)
    assert (changed.name, changed.executable, changed.arguments) == ("nap", "/bin/sleep", ["60"])
    napping = client.run_job("nap", {})
    raises(InUseException, client.delete_job_template, "nap")
    client.cancel_job(napping.job_id())
    while client.get_job(napping.job_id()).job_status() != JobHandle.Status.CANCELLED:
        time.sleep(0.05)
    assert (client.delete_job_template("nap"), client.delete_job_template("nap")) == (True, False)


def credentials(client):
    keys = {"s3-access-key-id": "AK", "s3-secret-access-key": "secret:env:METASTORE_TEST_S3_KEY"}
    catalog = client.create_catalog(
        *("keys", Catalog.Type.FILESET, "fileset", ""),
        {"location": "s3://b/x", "credential-providers": "s3-secret-key,s3-token", **keys},
    )
    (found,) = catalog.support_credentials().get_credentials()
    assert (found.access_key_id(), found.secret_access_key(), found.expire_time_in_ms()) == ("AK", "s3cr3t", 0)


def main(uri):
    admin = GravitinoAdminClient(uri=uri)
    admin.create_metalake("lake", "a lake", {"k": "v"})
    raises(MetalakeAlreadyExistsException, admin.create_metalake, "lake", "", {})
    assert [one.name() for one in admin.list_metalakes()] == ["lake"]
    client = GravitinoClient(uri=uri, metalake_name="lake")
    catalog = tables(client)
    partitions(catalog)
    statistics(catalog)
    disabled(client, catalog)
    filesets(client)
    models(client)
    governed(client, catalog)
    permitted(client)
    functions(client)
    jobs(client)
    credentials(client)
    assert admin.drop_metalake("lake", True) is True


if __name__ == "__main__":
    main(sys.argv[1])
