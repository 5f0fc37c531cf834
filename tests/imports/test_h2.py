"""Scripts of H2: texts with quotes, semicolons, escapes and line feeds come back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

import metastore as ms
from metastore.imports.gravitino.h2 import load_script

SCRIPT = r"""-- H2 2.2.224; a comment
;
CREATE USER IF NOT EXISTS "SA" SALT '12' HASH '34' ADMIN;
CREATE MEMORY TABLE "PUBLIC"."TAG_META"(
    "TAG_ID" BIGINT COMMENT 'an id, (the id); it''s' NOT NULL,
    "TAG_NAME" CHARACTER VARYING(128) NOT NULL,
    "TAG_COMMENT" CHARACTER VARYING(256) DEFAULT '',
    "RATE" DECIMAL(10, 2),
    "ON_OFF" BOOLEAN
);
ALTER TABLE "PUBLIC"."TAG_META" ADD CONSTRAINT "PUBLIC"."C" PRIMARY KEY("TAG_ID");
-- 3 +/- SELECT COUNT(*) FROM PUBLIC.TAG_META;
CREATE CACHED LOCAL TEMPORARY TABLE IF NOT EXISTS SYSTEM_LOB_STREAM(ID INT NOT NULL, PART INT NOT NULL, CDATA VARCHAR);
INSERT INTO SYSTEM_LOB_STREAM VALUES(0, 0, U&'a text of more than\d83d', NULL);
INSERT INTO SYSTEM_LOB_STREAM VALUES(1, 0, 'another', NULL);
INSERT INTO SYSTEM_LOB_STREAM VALUES(0, 1, U&'\de00 4 KiB; it''s l\00f6ng', NULL);
INSERT INTO "PUBLIC"."TAG_META" VALUES
(1, 'it''s; (so -- no comment', U&'\00e9 \\ a\000ab \+01f600', 1.50, TRUE),
(-2, '', NULL, NULL, FALSE),
(-3, 'long', SYSTEM_COMBINE_CLOB(0), 0, FALSE);
DROP TABLE IF EXISTS SYSTEM_LOB_STREAM;
"""


LONG = (-3, "long", "a text of more than\U0001f600 4 KiB; it's löng", 0, 0)


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "h2.sql").write_text(SCRIPT)
    with load_script(str(tmp_path / "h2.sql")) as connection:
        rows = [tuple(row) for row in connection.execute(sa.text("SELECT * FROM tag_meta ORDER BY tag_id DESC"))]
    assert rows == [(1, "it's; (so -- no comment", "é \\ a\nb \U0001f600", 1.5, 1), (-2, "", None, None, 0), LONG]


@pytest.mark.parametrize("text", ["INSERT INTO T VALUES (1, 2);", "INSERT INTO T VALUES (X'00');"])
def test_what_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "h2.sql").write_text(f'CREATE MEMORY TABLE "PUBLIC"."T"("A" BIGINT);\n{text}')
    with pytest.raises(ms.InvalidArgument), load_script(str(tmp_path / "h2.sql")):
        pass
