"""Who gets in, for how long, and what a page of another origin gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from metastore.serve import Principal, Principals, TokenFile
from metastore.serve.console import session
from metastore.serve.console.session import COOKIE, Sessions
from metastore.serve.principals import NotAuthenticated
from tests.console.server import Console, Page, served


@pytest.fixture
def browser(guarded: Console) -> Iterator[httpx.Client]:
    """Give a browser without a session, which follows redirects."""
    with httpx.Client(base_url=guarded.address, follow_redirects=True) as client:
        yield client


def origin(client: httpx.Client) -> dict[str, str]:
    return {"Origin": f"http://{client.base_url.netloc.decode()}"}


def sign_in(client: httpx.Client, token: str, following: str = "", **headers: str) -> httpx.Response:
    return client.post(
        "signin",
        data={"token": token, "next": following},
        headers={**origin(client), **headers},
        follow_redirects=False,
    )


def test_without_a_session_a_page_leads_to_the_form_and_back(browser: httpx.Client) -> None:
    wanted = "./?path=lake.sales.shop.orders&kind=table"
    form = browser.get(wanted)
    assert "Sign in" in form.text
    assert form.url.path == "/console/signin"
    following = parse_qs(urlsplit(str(form.url)).query)["next"][0]
    answer = sign_in(browser, "narrow-token", following)
    assert (answer.status_code, answer.headers["location"]) == (303, "./?path=lake.sales.shop.orders&kind=table")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "max-age=43200" in cookie
    assert "path" not in cookie
    assert "secure" not in cookie
    assert "narrow-token" not in cookie
    assert "orders" in browser.get(wanted).text


def test_odd_addresses_and_forms_are_no_defect(browser: httpx.Client) -> None:
    assert "Sign in" in browser.get("search?q=a&page=2").text
    assert sign_in(browser, "narrow-token", "search?page=2").headers["location"] == "search?page=2"
    many = browser.post("signin", data={f"a{n}": "1" for n in range(20)}, headers=origin(browser))
    assert many.status_code == 401


def test_behind_tls_the_cookie_is_secure(browser: httpx.Client) -> None:
    by_tls = {"Origin": origin(browser)["Origin"].replace("http:", "https:")}
    told = {"X-Forwarded-Proto": "https"}  # uvicorn believes a proxy on loopback
    for headers in ({**by_tls, **told}, by_tls, {**told, "Sec-Fetch-Site": "same-origin"}):
        answer = browser.post("signin", data={"token": "narrow-token"}, headers=headers, follow_redirects=False)
        assert "secure" in answer.headers["set-cookie"].lower()
    forged = browser.post("signin", data={"token": "narrow-token"}, headers={**origin(browser), **told})
    assert forged.status_code == 403  # a page that came without TLS may be a stranger's


@pytest.mark.parametrize(
    "following",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil",
        "javascript:alert(1)",
        "../../api",
        "signout",
    ],
)
def test_a_sign_in_leads_to_pages_of_the_console_only(browser: httpx.Client, following: str) -> None:
    assert sign_in(browser, "narrow-token", following).headers["location"] == "./"


def test_a_wrong_token_gets_the_form_again(browser: httpx.Client) -> None:
    for token in ("wrong", "", "narrow", "root-token root-token"):
        answer = sign_in(browser, token)
        assert answer.status_code == 401
        assert "not valid" in answer.text
        assert COOKIE not in answer.cookies
    large = sign_in(browser, "x" * 20_000)
    assert large.status_code == 401


def test_a_form_of_another_origin_is_refused(browser: httpx.Client) -> None:
    for page in ("signin", "signout"):
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {}, {"Sec-Fetch-Site": "cross-site"}):
            answer = browser.post(page, data={"token": "narrow-token"}, headers=headers, follow_redirects=False)
            assert answer.status_code == 403, (page, headers)
            assert "set-cookie" not in answer.headers, (page, headers)


def test_signing_out_ends_the_session(browser: httpx.Client) -> None:
    sign_in(browser, "narrow-token")
    assert "narrow" in browser.get("./").text
    browser.post("signout", headers=origin(browser))
    assert COOKIE not in browser.cookies
    assert browser.get("./").url.path == "/console/signin"


def test_a_token_that_is_taken_out_ends_its_sessions_everywhere(lake_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("root root-token\nnarrow narrow-token\n")
    with (
        served(lake_url, Principals(TokenFile(file)), admins=("root",)) as one,
        served(lake_url, Principals(TokenFile(file)), admins=("root",)) as other,
    ):
        with httpx.Client(base_url=one.address) as client:
            cookie = sign_in(client, "narrow-token").cookies[COOKIE]
        for console in (one, other):
            assert httpx.get(console.address, cookies={COOKIE: cookie}).status_code == 200
        file.write_text("root root-token\n")
        for console in (one, other):
            assert httpx.get(console.address, cookies={COOKIE: cookie}).status_code == 303


def test_a_session_has_an_end_that_nobody_can_move(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(Principals({session._digest_of("t"): "ann", session._digest_of("u"): "bob"}))
    cookie = sessions.cookie("t")
    assert sessions.principal({}, cookie).name == "ann"
    version, end, proof = cookie.split(".")
    with pytest.raises(NotAuthenticated):
        sessions.principal({}, f"{version}.{int(end) + 1}.{proof}")
    for forged in (
        "",
        "x",
        "1..",
        "1.9.",
        "3.9999999999.x",
        f"1.{end}.",
        f"1.{end}.é",
        f"2.{end}.x",
        f"1.²{end}.{proof}",
        cookie + "0",
    ):
        with pytest.raises(NotAuthenticated):
            sessions.principal({}, forged)
    monkeypatch.setattr(session, "_now", lambda: int(end))
    with pytest.raises(NotAuthenticated):
        sessions.principal({}, cookie)


def test_a_token_of_an_issuer_is_verified_at_each_request() -> None:
    class Issuer(Principals):
        valid = True

        def principal(self, headers: object) -> Principal:
            if not self.valid:
                raise NotAuthenticated("expired")
            return Principal("ann")

    issuer = Issuer({session._digest_of("other"): "bob"})
    sessions = Sessions(issuer)
    cookie = sessions.cookie("a.b.c")
    assert sessions.principal({}, cookie).name == "ann"
    Issuer.valid = False
    with pytest.raises(NotAuthenticated):
        sessions.principal({}, cookie)


def test_the_user_of_a_proxy_needs_no_form(lake_url: str) -> None:
    with served(lake_url, Principals(header="X-User"), admins=("root",)) as console:
        answer = console.client.get(console.address, headers={"X-User": "root"})
        assert answer.status_code == 200
        assert "Sign out" not in answer.text
        assert "root" in answer.text
        assert console.client.get(console.address).status_code == 401
        assert console.client.get(f"{console.address}signin").status_code == 303


def test_who_may_see_nothing_is_told(browser: httpx.Client) -> None:
    sign_in(browser, "stranger-token")
    assert "There is nothing that you may see" in browser.get("./").text


def test_another_host_is_refused_where_nothing_is_checked(console: Console) -> None:
    assert console.client.get(console.address, headers={"Host": "evil.example"}).status_code == 403


def test_links_hold_below_a_prefix(console: Console) -> None:
    """A proxy may serve the console below any path: no address in a page begins with a slash or a host."""
    for page in ("", "feed", "search?q=o", "?path=lake.sales.shop.orders&kind=table", "contention", "signin"):
        html = console.client.get(f"{console.address}{page}", follow_redirects=True).text
        for link in Page("http://proxy.example/prefix/console/", html).links:
            assert link.startswith(("http://proxy.example/prefix/console/", "https://example.com/")), link
