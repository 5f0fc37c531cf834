"""What a user of Spark does with an Iceberg catalog; it runs in the environment of ``make iceberg-spark``.

``ICEBERG_SETTINGS``, in the environment, is JSON with more settings of the catalog.

``python spark_program.py ADDRESS JAR [WRITER APPENDS]``: without a writer, statements of each sort; a line of JSON says
what each returned. With one, so many appends to ``ice.hot.t``, each of a row (writer, number).
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

STATEMENTS = [
    "CREATE NAMESPACE ice.a",
    "CREATE TABLE ice.a.t (id bigint, name string) USING iceberg PARTITIONED BY (bucket(4, id))",
    "INSERT INTO ice.a.t VALUES (1, 'x'), (2, 'y')",
    "ALTER TABLE ice.a.t ADD COLUMN z int",
    "UPDATE ice.a.t SET z = 3 WHERE id = 1",
    "DELETE FROM ice.a.t WHERE id = 2",
    (
        "MERGE INTO ice.a.t t USING (SELECT 5L id) s ON t.id = s.id"
        " WHEN NOT MATCHED THEN INSERT (id, name, z) VALUES (s.id, 'm', 0)"
    ),
    "SELECT * FROM ice.a.t ORDER BY id",
    "SELECT count(*) FROM ice.a.t.snapshots",
    "CREATE TABLE ice.a.u USING iceberg AS SELECT * FROM ice.a.t",
    "ALTER TABLE ice.a.u RENAME TO a.v",
    "SHOW TABLES IN ice.a",
    "CREATE VIEW ice.a.w AS SELECT id FROM ice.a.t",
    "SELECT count(*) FROM ice.a.w",
    "SHOW VIEWS IN ice.a",
    "ALTER TABLE ice.a.t SET TBLPROPERTIES ('k' = 'v')",
    "ALTER TABLE ice.a.t CREATE BRANCH b",
    "INSERT INTO ice.a.t.branch_b VALUES (9, 'n', 1)",
    "SELECT count(*) FROM ice.a.t VERSION AS OF 'b'",
    "CREATE NAMESPACE ice.a.n",
    "SHOW NAMESPACES IN ice.a",
    "DROP TABLE ice.a.v PURGE",
    "DROP VIEW ice.a.w",
    "DROP NAMESPACE ice.a.n",
]


def session(address: str, jar: str) -> SparkSession:
    """Open a session as Iceberg's documentation says, with one catalog of the REST protocol."""
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "rest",
        "spark.sql.catalog.ice.uri": address,
        "spark.sql.catalog.ice.warehouse": "lake.ice",
    }
    for key, value in json.loads(os.environ.get("ICEBERG_SETTINGS", "{}")).items():
        settings[f"spark.sql.catalog.ice.{key}"] = value
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    """Run what the arguments say."""
    address, jar, *writer = sys.argv[1:]
    spark = session(address, jar)
    if writer:
        for n in range(int(writer[1])):
            spark.sql(f"INSERT INTO ice.hot.t VALUES ('{writer[0]}', {n})")
        return
    for statement in STATEMENTS:
        rows: list[Any] = [list(row) for row in spark.sql(statement).collect()]
        print(json.dumps([statement, rows]), flush=True)


if __name__ == "__main__":
    main()
