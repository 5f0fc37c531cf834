"""A small world in Gravitino's tables: one of everything, and what its known races leave behind."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

__all__ = ["World"]

AUDIT = {
    "creator": "ann",
    "createTime": "2025-03-04T05:06:07.123456789Z",
    "lastModifier": "bob",
    "lastModifiedTime": "2025-03-05T05:06:07Z",
}
INT = json.dumps("integer")
STRUCT = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True}]})


class World:
    """Rows of Gravitino's tables, in whatever columns a database of some version has."""

    def __init__(self, connection: sa.Connection, metadata: sa.MetaData | None = None) -> None:
        """``metadata``: the tables, as another world of this database read them. To read them takes long."""
        self.connection = connection
        self.metadata = metadata or sa.MetaData()
        if metadata is None:
            self.metadata.reflect(connection)

    def add(self, table: str, **values: Any) -> None:
        """Insert a row; a table or column that this version does not have is left out."""
        there = self.metadata.tables.get(table)
        if there is None:
            return
        usual = {
            "current_version": 1,
            "last_version": 1,
            "deleted_at": 0,
            "updated_at": 0,
            "audit_info": json.dumps(AUDIT),
        }
        usual |= {"schema_version": "1", "enabled": True, "tag_value": ""}
        row = {k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in {**usual, **values}.items()}
        self.connection.execute(there.insert().values({k: v for k, v in row.items() if k in there.columns}))

    def set(self, table: str, wanted: dict[str, Any], **values: Any) -> None:
        """Change rows."""
        there = self.metadata.tables[table]
        query = there.update().where(*[there.columns[name] == value for name, value in wanted.items()])
        self.connection.execute(query.values(values))

    def column(self, table: int, key: int, name: str, position: int, *, version: int = 1, **more: Any) -> None:
        """Insert a version of a column."""
        given: dict[str, Any] = {
            "column_type": INT,
            "column_comment": "",
            "column_nullable": 0,
            "column_auto_increment": 1,
        }
        given |= {"column_default_value": None, "column_op_type": 1, **self.place(), **more}
        self.add(
            "table_column_version_info",
            table_id=table,
            table_version=version,
            column_id=key,
            column_name=name,
            column_position=position,
            **given,
        )

    def place(self) -> dict[str, Any]:
        """Return the ids of lake.sales.eu."""
        return {"metalake_id": 1, "catalog_id": 10, "schema_id": 100}

    def table(self, key: int, name: str, **more: Any) -> None:
        """Insert a table without columns."""
        self.add("table_meta", table_id=key, table_name=name, **{**self.place(), **more})

    def fill(self) -> None:
        """Insert one of everything, all of it sound."""
        lake = {"metalake_id": 1}
        self.add(
            "metalake_meta", **lake, metalake_name="lake", metalake_comment="a lake", properties={"in-use": "true"}
        )
        catalog = {"catalog_id": 10, "catalog_name": "sales", "type": "RELATIONAL", "provider": "hive"}
        self.add("catalog_meta", **lake, **catalog, catalog_comment="", properties={"in-use": "true", "k": "v"})
        off = {"catalog_id": 11, "catalog_name": "off", "type": "FILESET", "provider": "hadoop"}
        self.add("catalog_meta", **lake, **off, catalog_comment="", properties={"in-use": "false"})
        for key, name in ((100, "eu"), (101, "us")):
            self.add("schema_meta", **lake, catalog_id=10, schema_id=key, schema_name=name, properties={})
        self._table_and_view()
        self._others()
        self._people()

    def _table_and_view(self) -> None:
        self.table(1000, "orders", current_version=2)
        self.column(1000, 5001, "id", 0, column_nullable=1, column_comment="the id")
        self.column(1000, 5002, "gone", 1)
        self.column(1000, 5002, "gone", 1, version=2, column_op_type=3)
        self.column(1000, 5003, "old name", 2, column_type=STRUCT)
        self.column(1000, 5003, "address", 1, version=2, column_type=STRUCT, column_op_type=2)
        self.add(
            "table_version_info",
            table_id=1000,
            version=2,
            comment="all orders",
            properties={"p": "q"},
            format="lance",
            partitioning=[{"strategy": "identity", "fieldName": ["id"]}],
            distribution={"strategy": "none", "number": 0, "funcArgs": []},
            sort_orders=[],
            indexes=[{"indexType": "PRIMARY_KEY", "name": "pk", "fieldNames": [["id"]]}],
        )
        statistic = {"statistic_id": 1, "statistic_name": "custom-rows", "statistic_value": "5", "metalake_id": 1}
        self.add("statistic_meta", **statistic, metadata_object_id=1000, metadata_object_type="TABLE")
        of_partition = {"partition_name": "id=1", "statistic_name": "custom-n", "statistic_value": "7"}
        self.add("partition_statistic_meta", table_id=1000, **of_partition, created_at=1, updated_at=1)
        self.add("view_meta", view_id=1100, view_name="big", **self.place())
        self.add(
            "view_version_info",
            view_id=1100,
            version=1,
            **self.place(),
            columns=[{"name": "id", "type": "integer", "nullable": True}],
            representations=[{"type": "sql", "dialect": "spark", "sql": "SELECT 1"}],
            default_schema="eu",
        )

    def _others(self) -> None:
        self.add("fileset_meta", fileset_id=1200, fileset_name="files", type="MANAGED", **self.place())
        for name, place in (("default", "s3://b/1"), ("cold", "s3://c/1")):
            said = {"fileset_comment": "some", "properties": {}, "storage_location_name": name}
            self.add("fileset_version_info", fileset_id=1200, version=1, **said, storage_location=place, **self.place())
        self.add("topic_meta", topic_id=1300, topic_name="events", comment="", properties={"n": "3"}, **self.place())
        self.add("model_meta", model_id=1400, model_name="churn", model_latest_version=2, **self.place())
        for version in (0, 1):
            said = {"model_version_uri_name": "unknown", "model_version_uri": f"s3://m/{version}"}
            self.add("model_version_info", model_id=1400, version=version, **said, **self.place())
        self.add("model_version_alias_rel", model_id=1400, model_version=1, model_version_alias="prod")
        self.add(
            "function_meta",
            function_id=1500,
            function_name="plus",
            function_type="SCALAR",
            deterministic=1,
            function_current_version=1,
            function_latest_version=1,
            **self.place(),
        )
        definition = {
            "parameters": [{"name": "x", "dataType": "integer"}],
            "returnType": "integer",
            "impls": [{"language": "SQL", "runtime": "SPARK", "sql": "x + 1"}],
        }
        self.add("function_version_info", function_id=1500, version=1, definitions=[definition], **self.place())

    def _people(self) -> None:
        lake = {"metalake_id": 1}
        self.add("user_meta", user_id=20, user_name="ann@corp.com", external_id="4711", **lake)
        self.add("user_meta", user_id=21, user_name="bob", **lake)
        self.add("group_meta", group_id=30, group_name="staff", **lake)
        self.add("role_meta", role_id=40, role_name="reader", properties={}, **lake)
        grant = {"role_id": 40, "metadata_object_id": 1000, "type": "TABLE"}
        self.add(
            "role_meta_securable_object", **grant, privilege_names=["SELECT_TABLE"], privilege_conditions=["ALLOW"]
        )
        self.add("user_role_rel", user_id=20, role_id=40)
        self.add("group_role_rel", group_id=30, role_id=40)
        self.add("tag_meta", tag_id=50, tag_name="pii", tag_comment="personal", properties={}, **lake)
        for key, kind in ((1000, "TABLE"), (5003, "COLUMN"), (10, "CATALOG")):
            self.add("tag_relation_meta", tag_id=50, metadata_object_id=key, metadata_object_type=kind)
        self.add("policy_meta", policy_id=60, policy_name="keep", policy_type="custom", **lake)
        content = {"customRules": {"days": 3}, "properties": {}, "supportedObjectTypes": ["TABLE"]}
        self.add("policy_version_info", policy_id=60, version=1, policy_comment="", content=content, **lake)
        self.add("policy_relation_meta", policy_id=60, metadata_object_id=1000, metadata_object_type="TABLE")
        self.owner(1000, "TABLE", 20)
        self.owner(1, "METALAKE", 30, "GROUP")
        command = {"jobType": "SHELL", "executable": "echo", "arguments": ["{{word}}"], "environments": {}}
        command |= {"customFields": {}, "scripts": []}
        template = {"job_template_id": 70, "job_template_name": "say", "job_template_content": command}
        self.add("job_template_meta", **template, **lake)
        run = {"job_run_id": 80, "job_template_id": 70, "job_execution_id": "x-80", "job_run_status": "SUCCEEDED"}
        self.add("job_run_meta", **run, **lake, job_started_at=1000, job_finished_at=2000)

    def owner(self, key: int, kind: str, owner: int, owner_kind: str = "USER", **more: Any) -> None:
        """Insert an owner."""
        ends = {"metadata_object_id": key, "metadata_object_type": kind, "owner_id": owner, "owner_type": owner_kind}
        self.add("owner_meta", metalake_id=1, **ends, **more)

    def spoil(self) -> dict[str, int]:
        """Plant what races leave behind; return how often each problem is to be found."""
        self.table(1901, "lost", schema_id=999)
        self.add("topic_meta", topic_id=1902, topic_name="lost too", **{**self.place(), "schema_id": 998})
        self.owner(1000, "TABLE", 21, audit_info={**AUDIT, "lastModifiedTime": "2025-06-01T00:00:00Z"}, updated_at=9)
        self.owner(101, "SCHEMA", 999)
        self.owner(997, "TABLE", 20)
        self.add("user_role_rel", user_id=20, role_id=996)
        self.add("tag_relation_meta", tag_id=50, metadata_object_id=995, metadata_object_type="TABLE")
        self.add("tag_relation_meta", tag_id=50, metadata_object_id=5002, metadata_object_type="COLUMN")
        grant = {"role_id": 40, "metadata_object_id": 994, "type": "SCHEMA"}
        self.add("role_meta_securable_object", **grant, privilege_names=["USE_SCHEMA"], privilege_conditions=["ALLOW"])
        odd = {"role_id": 40, "metadata_object_id": 10, "type": "CATALOG"}
        self.add("role_meta_securable_object", **odd, privilege_names=["FLY"], privilege_conditions=["ALLOW"])
        self.add("fileset_meta", fileset_id=1903, fileset_name="without version", type="MANAGED", **self.place())
        self.table(1904, "odd")
        self.column(1904, 5900, "c", 0, column_type="{not json")
        return {"orphan": 2, "double_owner": 1, "dangling": 6, "unknown": 1, "unreadable": 2}
