"""A user sees on no page, in no count, no title and no suggestion what its rights do not show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import metastore as ms
from tests.console.server import Console, crawled
from tests.console.test_signin import sign_in

HIDDEN = ("secret_plans", "lake.sales.hidden", "nobody knows", "lake.sales.odd", "search-index", "before-the-sale")
"""Names that the narrow user may not learn."""


@pytest.fixture(scope="module")
def narrow(guarded: Console) -> Iterator[Console]:
    """Give the console as a user with the right to read one schema."""
    guarded.client.cookies.clear()
    guarded.client.base_url = guarded.address
    sign_in(guarded.client, "narrow-token")
    yield guarded
    guarded.client.cookies.clear()


def test_no_link_leads_a_user_to_a_hidden_name(narrow: Console) -> None:
    pages = crawled(narrow, alike=1)
    assert len(pages) > 30
    for address, page in pages.items():
        for name in HIDDEN:
            assert name not in page.html, (name, address)
        assert "Contention" not in page.text, address


def test_what_a_user_may_see_is_there(narrow: Console) -> None:
    page = narrow.get(path="lake.sales.shop.orders", kind="table")
    assert "amount" in page.text
    assert "pii" not in page.text
    answer = narrow.get(
        "rights", path="lake.sales.shop.orders", kind="table", privilege="modify_table", user="ann"
    ).text
    assert "No: narrow may not use modify_table" in answer


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("", {"path": "lake.sales.hidden.secret_plans", "kind": "table"}),
        ("", {"path": "lake.sales.hidden.secret_plan", "kind": "table"}),
        ("", {"path": "lake.sales.hiddn", "kind": "schema"}),
        ("", {"path": "lake.sales", "kind": "catalog"}),
        ("", {"path": "lake.sales", "kind": "catalog", "tab": "dropped"}),
        ("", {"path": "lake.sales", "kind": "catalog", "prefix": "hid"}),
        ("", {"path": "lake.sales.hidden", "kind": "schema", "at": "1 second ago"}),
        ("search", {"q": "secret"}),
        ("search", {"q": "*plans", "under": "lake.sales"}),
        ("search", {"q": "nobody knows", "in": "texts"}),
        ("search", {"q": "e", "in": "texts"}),
        ("search", {"q": "*", "under": "lake.sales.hidden"}),
        ("feed", {"under": "lake.sales.hidden", "kind": "schema"}),
        ("feed", {"kinds": "table"}),
        ("feed", {"by": "bob"}),
        ("rights", {"path": "lake.sales.hidden.secret_plans", "kind": "table"}),
        ("compare", {"path": "lake.sales.hidden.secret_plans", "kind": "table"}),
        ("changes", {"path": "lake.sales", "kind": "catalog"}),
        ("revert", {"path": "lake.sales.shop", "kind": "schema", "to": "1 hour ago"}),
    ],
)
def test_no_page_tells_a_hidden_name(narrow: Console, page: str, query: dict[str, str]) -> None:
    answer = narrow.client.get(f"{narrow.address}{page}", params=query)
    assert answer.status_code in (200, 400, 403, 404)
    asked = set(query.values())
    for name in HIDDEN:
        if not any(name in value for value in asked):
            assert name not in answer.text, name


def test_a_hidden_path_is_answered_like_one_that_is_not_there(narrow: Console) -> None:
    hidden = narrow.get(path="lake.sales.hidden.x", kind="table", status=404).text
    absent = narrow.get(path="lake.sales.absent.x", kind="table", status=404).text
    assert hidden.replace("hidden", "absent") == absent


def test_contention_and_health_are_for_admins(narrow: Console) -> None:
    with pytest.raises(ms.PermissionDenied):
        narrow.store.as_user("narrow").losses()
    for page in ("contention", "health"):
        assert "You may not see this" in narrow.get(page, status=403).text
    operation = next(
        one.operation_id for one in narrow.store.changes() if (one.path_after or "").endswith("secret_plans")
    )
    text = narrow.get("operation", id=operation).text
    assert "state unknown" in text
    assert "secret" not in text


def test_an_admin_sees_everything(guarded: Console, narrow: Console) -> None:
    guarded.client.cookies.clear()
    sign_in(guarded.client, "root-token")
    assert "Hottest entities" in guarded.get("contention").text
    assert "secret_plans" in guarded.get(path="lake.sales.hidden", kind="schema").text
    assert (
        "no"
        in guarded.get("rights", path="lake.sales.shop.orders", kind="table", user="ann", privilege="select_table").text
    )
    guarded.client.cookies.clear()
    sign_in(narrow.client, "narrow-token")


def test_a_right_that_is_taken_away_is_gone_with_the_next_page(narrow: Console) -> None:
    query: dict[str, Any] = {"path": "lake.sales.shop.orders", "kind": "table"}
    assert narrow.get(**query)
    narrow.store.roles.unassign("lake.reader", "lake.analysts")
    try:
        assert "amount" not in narrow.get(**query, status=404).html
    finally:
        narrow.store.roles.assign("lake.reader", "lake.analysts")
    assert isinstance(narrow.store.roles.of("lake.analysts")[0], ms.Role)
