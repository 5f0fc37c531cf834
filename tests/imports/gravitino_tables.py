"""Tables as Gravitino's relational backend has them, for the versions that the tests build; written for these tests.

Each column has the first version that has it. Types are the least that all databases share.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

__all__ = ["VERSIONS", "create_tables"]

VERSIONS = (100, 120, 130)
_AUDIT = "audit_info:t current_version:i last_version:i deleted_at:b"
_BELOW = "metalake_id:b catalog_id:b schema_id:b"
_TABLES: dict[str, tuple[int, str]] = {
    "metalake_meta": (100, f"metalake_id:b metalake_name:s metalake_comment:s properties:t schema_version:t {_AUDIT}"),
    "catalog_meta": (
        100,
        f"catalog_id:b catalog_name:s metalake_id:b type:s provider:s catalog_comment:s properties:t {_AUDIT}",
    ),
    "schema_meta": (
        100,
        f"schema_id:b schema_name:s metalake_id:b catalog_id:b schema_comment:s properties:t {_AUDIT}",
    ),
    "table_meta": (100, f"table_id:b table_name:s {_BELOW} {_AUDIT}"),
    "table_column_version_info": (
        100,
        (
            f"id:k {_BELOW} table_id:b table_version:i column_id:b column_name:s column_position:i column_type:t "
            "column_comment:s column_nullable:i column_auto_increment:i column_default_value:t column_op_type:i "
            "deleted_at:b audit_info:t"
        ),
    ),
    "table_version_info": (
        110,
        (
            "table_id:b format:s properties:t partitioning:t distribution:t sort_orders:t indexes:t comment:t "
            "version:b deleted_at:b"
        ),
    ),
    "fileset_meta": (100, f"fileset_id:b fileset_name:s {_BELOW} type:s {_AUDIT}"),
    "fileset_version_info": (
        100,
        (
            f"id:k {_BELOW} fileset_id:b version:i fileset_comment:s properties:t storage_location_name:s "
            "storage_location:t deleted_at:b"
        ),
    ),
    "topic_meta": (100, f"topic_id:b topic_name:s {_BELOW} comment:s properties:t {_AUDIT}"),
    "model_meta": (
        100,
        (
            f"model_id:b model_name:s {_BELOW} model_comment:t model_properties:t model_latest_version:i audit_info:t "
            "deleted_at:b"
        ),
    ),
    "model_version_info": (
        100,
        (
            f"id:k {_BELOW} model_id:b version:i model_version_comment:t model_version_properties:t "
            "model_version_uri_name:s@110 model_version_uri:t audit_info:t deleted_at:b"
        ),
    ),
    "model_version_alias_rel": (100, "id:k model_id:b model_version:i model_version_alias:s deleted_at:b"),
    "user_meta": (
        100,
        f"user_id:b user_name:s metalake_id:b external_id:s@130 enabled:i@130 {_AUDIT} updated_at:b@130",
    ),
    "group_meta": (100, f"group_id:b group_name:s metalake_id:b external_id:s@130 {_AUDIT} updated_at:b@130"),
    "role_meta": (100, f"role_id:b role_name:s metalake_id:b properties:t {_AUDIT} updated_at:b@130"),
    "role_meta_securable_object": (
        100,
        (
            "id:k role_id:b metadata_object_id:b type:s privilege_names:t privilege_conditions:t current_version:i "
            "last_version:i deleted_at:b"
        ),
    ),
    "user_role_rel": (100, f"id:k user_id:b role_id:b {_AUDIT}"),
    "group_role_rel": (100, f"id:k group_id:b role_id:b {_AUDIT}"),
    "tag_meta": (100, f"tag_id:b tag_name:s metalake_id:b tag_comment:s properties:t allowed_values:t@130 {_AUDIT}"),
    "tag_relation_meta": (
        100,
        f"id:k tag_id:b metadata_object_id:b metadata_object_type:s tag_value:s@130 {_AUDIT}",
    ),
    "owner_meta": (
        100,
        (
            "id:k metalake_id:b owner_id:b owner_type:s metadata_object_id:b metadata_object_type:s "
            f"{_AUDIT} updated_at:b@130"
        ),
    ),
    "policy_meta": (100, f"policy_id:b policy_name:s policy_type:s metalake_id:b {_AUDIT}"),
    "policy_version_info": (
        100,
        "id:k metalake_id:b policy_id:b version:i policy_comment:t enabled:i content:t deleted_at:b",
    ),
    "policy_relation_meta": (100, f"id:k policy_id:b metadata_object_id:b metadata_object_type:s {_AUDIT}"),
    "statistic_meta": (
        100,
        (
            f"id:k statistic_id:b statistic_name:s metalake_id:b statistic_value:t metadata_object_id:b "
            f"metadata_object_type:s {_AUDIT}"
        ),
    ),
    "job_template_meta": (
        100,
        f"job_template_id:b job_template_name:s metalake_id:b job_template_comment:t job_template_content:t {_AUDIT}",
    ),
    "job_run_meta": (
        100,
        (
            "job_run_id:b job_template_id:b metalake_id:b job_execution_id:s job_run_status:s job_started_at:b@130 "
            f"job_finished_at:b {_AUDIT}"
        ),
    ),
    "function_meta": (
        120,
        (
            f"function_id:b function_name:s {_BELOW} function_type:s deterministic:i function_current_version:i "
            "function_latest_version:i audit_info:t deleted_at:b"
        ),
    ),
    "function_version_info": (
        120,
        f"id:k {_BELOW} function_id:b version:i function_comment:t definitions:t audit_info:t deleted_at:b",
    ),
    "view_meta": (130, f"view_id:b view_name:s {_BELOW} {_AUDIT}"),
    "view_version_info": (
        130,
        (
            f"id:k {_BELOW} view_id:b version:i view_comment:t columns:t properties:t default_catalog:s "
            "default_schema:s representations:t audit_info:t deleted_at:b"
        ),
    ),
    "partition_statistic_meta": (
        120,
        "table_id:b partition_name:s statistic_name:s statistic_value:t audit_info:t created_at:b updated_at:b",
    ),
}
_TYPES: dict[str, type[sa.types.TypeEngine[Any]] | sa.types.TypeEngine[Any]] = {
    "b": sa.BigInteger,
    "i": sa.Integer,
    "s": sa.String(128),
    "t": sa.Text,
    "k": sa.Integer,
}


def create_tables(connection: sa.Connection, version: int) -> None:
    """Create the tables of a version, such as 120 for 1.2."""
    metadata = sa.MetaData()
    for name, (since, columns) in _TABLES.items():
        if since <= version:
            words = [word.partition("@") for word in columns.split()]
            there = [word for word, _, first in words if int(first or 0) <= version]
            sa.Table(name, metadata, *[_column(*word.split(":")) for word in there])
    metadata.create_all(connection)


def _column(name: str, kind: str) -> sa.Column[Any]:
    return sa.Column(name, _TYPES[kind], primary_key=kind == "k", autoincrement=kind == "k")
