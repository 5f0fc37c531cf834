"""A template whose jobs have not ended is not dropped, whoever queued them."""

from __future__ import annotations

from pathlib import Path

import httpx

import metastore as ms
from metastore.jobs import submit
from metastore.serve import Principals
from tests.iceberg.server import served

PATH = "/api/metalakes/lake/jobs/templates/t"


def test_a_template_stays_while_a_job_of_another_user_waits(sqlite_url: str, tmp_path: Path) -> None:
    with ms.open(sqlite_url, principal="root") as store:
        store.metalakes.create("lake")
        store.catalogs.create("lake.ice", type="relational")
        template = store.job_templates.create("lake.t", type="shell", executable="true")
        runner = store.roles.create("lake.runner")
        for privilege in ("run_job", "use_job_template"):
            store.roles.grant(runner, privilege, "lake", kind="metalake")
        for name in ("ann", "bob"):
            store.roles.assign(runner, store.users.create(("lake", name)))
        store.owners.set(template, ("lake", "ann"))
        job = submit(store.as_user("bob"), "lake.t")
        with served(sqlite_url, tmp_path / "w", Principals(header="X-User"), admins=["root"]) as address:
            url = f"{address.removesuffix('/iceberg')}{PATH}"

            def drop(user: str) -> tuple[int, str]:
                answer = httpx.delete(url, headers={"X-User": user}).json()
                return answer["code"], answer.get("type", "")

            assert drop("bob") == (1008, "ForbiddenException")
            assert drop("ann") == (1010, "InUseException")
            assert store.job_templates.exists("lake.t")
            store.jobs.cancel(job)
            assert drop("ann") == (0, "")
        assert not store.job_templates.exists("lake.t")
