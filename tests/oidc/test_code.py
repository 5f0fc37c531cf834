"""The console's way to the issuer and back: who comes in, and which answers of which browsers do not count."""

from __future__ import annotations

import html
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest

import metastore as ms
from metastore.serve.console.session import COOKIE
from metastore.serve.console.signin import BEGUN
from metastore.serve.oidc import Client, Issuer, asking
from metastore.serve.principals import IssuerAway
from tests.console.server import Page
from tests.iceberg.server import served
from tests.loadtest.browser import chromium
from tests.oidc.browser import PUBLIC, SECRET, Browser, principals
from tests.oidc.issuer import DISCOVERY, MovedClock, OwnIssuer, send

pytestmark = pytest.mark.one_in(3)


@pytest.fixture
def own() -> Iterator[OwnIssuer]:
    with OwnIssuer() as own:
        own.says["authorization_response_iss_parameter_supported"] = True
        yield own


@pytest.fixture
def address(own: OwnIssuer, sqlite_url: str, tmp_path: Path) -> Iterator[str]:
    with served(sqlite_url, tmp_path / "w", principals(own)) as address:
        yield address


def test_any_server_ends_a_sign_in(own: OwnIssuer, address: str, sqlite_url: str, tmp_path: Path) -> None:
    browser, wanted = Browser(address), "./?path=lake.ice&kind=catalog"
    own.says["end_session_endpoint"] = f"{own.url}/logout?x=1"
    form = browser.get(browser.get(wanted).headers["location"])
    assert "Sign in at 127.0.0.1" in form.text
    (link,) = [one for one in Page(browser.base, form.text).links if "login" in one]
    answer = browser.client.get(link)
    cookie = answer.headers["set-cookie"].lower()
    assert all(one in cookie for one in (BEGUN, "httponly", "samesite=lax", "max-age=600"))
    assert "secure" not in cookie
    asked = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (asked["scope"], asked["redirect_uri"]) == ("openid lake", f"{PUBLIC}/console/callback")
    said = browser.at_issuer(own, asked)
    with served(sqlite_url, tmp_path / "w", principals(own)) as other:
        browser.base = other.replace("/iceberg", "/console/")  # cookies do not depend on the port
        answer = browser.back(said)
        page = Page(browser.base, answer.text)
        assert (answer.status_code, page.inline) == (200, [])
        assert 'content="0; url=./?path=lake.ice&amp;kind=catalog"' in answer.text
        session = next(one for one in answer.headers.get_list("set-cookie") if COOKIE in one).lower()
        assert all(one in session for one in ("httponly", "samesite=strict"))
        assert BEGUN not in browser.client.cookies
    browser.base = address.replace("/iceberg", "/console/")
    assert "4711" in browser.get(wanted).text
    assert browser.back(said).status_code == 401  # the answer counts once
    assert browser.is_in
    # the proxy at the public address sends a Host of its own, as nginx does
    public = PUBLIC.removesuffix("/lake")
    forged = browser.client.post(f"{browser.base}signout", headers={"Origin": public.replace("http:", "https:")})
    assert [forged.status_code, browser.is_in] == [403, True]
    out = browser.client.post(f"{browser.base}signout", headers={"Origin": public})
    assert [out.status_code, browser.is_in] == [200, False]
    place = browser.get("leave").headers["location"]
    assert place.startswith(f"{own.url}/logout?x=1&client_id=console&post_logout_redirect_uri=http%3A%2F%2F127.0.0.1")


def test_behind_tls_cookies_are_secure_and_clients_prove_who_they_are(
    own: OwnIssuer, sqlite_url: str, tmp_path: Path
) -> None:
    with served(sqlite_url, tmp_path / "w", principals(own, "https://lake.example/")) as address:
        answer = Browser(address).get("login")
    spelled = principals(own, "HTTPS://lake.example").issuer
    assert spelled is not None
    assert spelled.code_flow is not None
    assert spelled.code_flow.is_secure
    assert "secure" in answer.headers["set-cookie"].lower()
    assert "redirect_uri=https%3A%2F%2Flake.example%2Fconsole%2Fcallback&" in answer.headers["location"]

    def signed_in(secret: str | None) -> str:
        flow = principals(own, secret=secret).issuer.code_flow  # type: ignore[union-attr]
        assert flow is not None
        place, cookie = flow.begin("x" * 3000)
        answer = Browser(address).at_issuer(own, dict(parse_qsl(urlsplit(place).query)))
        begun = flow.begun(answer, cookie)
        assert flow.end(answer, begun)
        return begun.following

    assert [signed_in(SECRET), signed_in(None)] == ["", ""]  # what is too long for a cookie is left out
    own.clients["console"] = "%:é+ secret"
    assert signed_in("%:é+ secret") == ""
    own.says["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    assert signed_in("%:é+ secret") == ""


@pytest.mark.long
def test_a_real_browser_comes_back_to_where_it_wanted_to_go(own: OwnIssuer, sqlite_url: str, tmp_path: Path) -> None:
    """The issuer is another site: its page leads back, and a browser sends no strict cookie then."""

    def form(handler: BaseHTTPRequestHandler) -> None:
        link = html.escape(handler.path.replace("/authorize?", "/approved?"))
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n")
        handler.wfile.write(f'<a href="{link}">Approve</a>'.encode())

    own.answers["/authorize"] = form
    known = principals(own)
    assert known.issuer is not None
    assert known.issuer.code_flow is not None
    with chromium() as browser, served(sqlite_url, tmp_path / "w", known) as address:
        base = address.replace("/iceberg", "").replace("127.0.0.1", "localhost")
        known.issuer.code_flow.client = Client("console", base, SECRET)
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(f"{message.location['url']}: {message.text}"))
        page.goto(f"{base}/console/?path=lake.ice&kind=catalog")
        page.click("a.at-issuer")
        page.click("text=Approve")
        page.wait_for_url(f"{base}/console/?path=lake.ice&kind=catalog")
        assert page.locator("text=4711").count() == 1
        page.click("text=Sign out")
        page.wait_for_url(f"{base}/console/signout")
        page.goto(f"{base}/console/")
        assert page.url.startswith(f"{base}/console/signin")
        assert [one for one in said if one.startswith(base)] == []


FOREIGN: dict[str, Callable[[dict[str, str]], dict[str, str] | str]] = {
    "another state": lambda said: {**said, "state": "A" * 43},
    "no state": lambda said: {**said, "state": ""},
    "a state that is not ASCII": lambda said: {**said, "state": "é"},
    "mixed up with another issuer": lambda said: {**said, "iss": "https://evil.example"},
    "without an issuer": lambda said: {name: value for name, value in said.items() if name != "iss"},
    "without a code": lambda said: {**said, "code": ""},
    "with two codes": lambda said: f"code=other&{urlencode(said)}",
    "an unknown code": lambda said: {**said, "code": "guessed"},
    "a refusal": lambda said: {**said, "error": "<script>alert(1)</script>", "error_description": "<b>"},
}


def test_an_answer_that_belongs_to_no_sign_in_of_this_browser(own: OwnIssuer, address: str) -> None:
    for name, changed in FOREIGN.items():
        browser = Browser(address)
        said = browser.at_issuer(own, browser.begun())
        answer = browser.back(changed(said))
        assert (answer.status_code, browser.is_in) == (401, False), name
        assert "alert" not in answer.text, name
        assert said["code"] not in answer.text, name
    attacker, victim = Browser(address), Browser(address)
    said = attacker.at_issuer(own, attacker.begun())
    assert victim.back(said).status_code == 401  # the attacker's answer, in a browser without a sign-in
    own_state = victim.begun()["state"]
    assert victim.back(said).status_code == 401  # and in one that has begun another
    for own.checks_pkce in (True, False):  # the attacker's code with the victim's state: the nonce is another one too
        own_state = victim.begun()["state"]
        said = {**attacker.at_issuer(own, attacker.begun()), "state": own_state}
        answer = victim.back(said)
        assert (answer.status_code, "invalid_grant" in answer.text) == (401, own.checks_pkce)
    assert not victim.is_in
    ours = victim.at_issuer(own, victim.begun())
    assert [victim.back(one).status_code for one in (said, ours)] == [401, 200]  # that answer ended nothing
    own.checks_pkce = True
    browser = Browser(address)
    said, kept = browser.at_issuer(own, browser.begun()), browser.client.cookies[BEGUN]
    assert browser.back(said).status_code == 200
    again = httpx.get(f"{browser.base}callback", params=said, cookies={BEGUN: kept})
    assert again.status_code == 401  # a thief with the cookie too: the issuer knows that the code was used
    said, kept = browser.at_issuer(own, browser.begun()), browser.client.cookies[BEGUN]
    for cookie in ("", "1.x.y", f"{int(time.time()) - 1}.{kept.partition('.')[2]}", kept + "!", f"²{kept}"):
        raw = [(b"Cookie", f"{BEGUN}={cookie}".encode())]
        assert httpx.get(f"{browser.base}callback", params=said, headers=raw).status_code == 401


WRONG_ID: dict[str, dict[str, Any]] = {
    "for another client": {"aud": "other"},
    "made for another client": {"aud": ["console", "other"], "azp": "other"},
    "of another sign-in": {"nonce": "n"},
    "without a nonce": {"nonce": None},
    "of another issuer": {"iss": "https://evil.example"},
    "of another key": {"key": "other", "header": {"kid": "first"}},
    "over": {"exp": 1},
}
WRONG_ACCESS: dict[str, dict[str, Any]] = {
    "for another audience": {"aud": "console"},
    "an ID token": {"header": {"typ": "JWT"}, "nonce": "n"},
    "too long": {"groups": ["x" * 100] * 28},
}


def test_the_tokens_for_a_code_are_checked(own: OwnIssuer, address: str) -> None:
    def signed_in() -> httpx.Response:
        browser = Browser(address)
        answer = browser.back(browser.at_issuer(own, browser.begun()))
        assert browser.is_in == (answer.status_code == 200)
        return answer

    for own.id_claims in WRONG_ID.values():
        assert signed_in().status_code == 401, own.id_claims
    own.id_claims = {"aud": ["console", "other"]}
    assert signed_in().status_code == 200
    for more in WRONG_ACCESS.values():
        own.user = {"sub": "4711", **more}
        answer = signed_in()
        assert answer.status_code == 401, more
    assert "characters" in answer.text
    own.user = {"sub": "4711", "more": ""}
    own.user["more"] = "x" * ((3796 - len(own.token(**own.user))) * 3 // 4)
    longest = signed_in()
    assert longest.status_code == 200
    assert all(3800 < len(one) <= 4096 for one in longest.headers.get_list("set-cookie") if COOKIE in one)


@pytest.mark.parametrize("following", ["https://evil.example/", "//evil.example", "/\\evil", "//[", "../../api"])
def test_a_sign_in_leads_to_pages_of_the_console(own: OwnIssuer, address: str, following: str) -> None:
    browser = Browser(address)
    answer = browser.back(browser.at_issuer(own, browser.begun(following)))
    assert 'content="0; url=./"' in answer.text
    token = own.token()
    browser.client.cookies.clear()
    form = {"token": token, "next": following}
    answer = browser.client.post(f"{browser.base}signin", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.headers["location"] == "./"


def _garbage(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, b"<html>")


def _large(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, b'{"access_token": "' + b"x" * (10 << 20) + b'"}')


def _nothing(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 200, b'{"access_token": 1}')


def _redirect(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 307, b"", Location="/realms/lake/token")


def _away(handler: BaseHTTPRequestHandler) -> None:
    send(handler, 503, b"")


def test_an_issuer_that_does_not_answer_delays_nobody(
    own: OwnIssuer, sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, later = MovedClock(), {"exp": int(time.time()) + 9999}
    own.user, own.id_claims = {"sub": "4711", **later}, later
    with served(sqlite_url, tmp_path / "w", principals(own, clock=clock)) as address:
        browser = Browser(address)
        for own.answers[DISCOVERY] in (_garbage, _large, _away):
            assert browser.get("login").status_code == 503
        own.answers.clear()
        for place in ("http://evil.example/authorize", "javascript:alert(1)", "http://[", 7):
            own.says["authorization_endpoint"] = place
            clock.move(301)
            assert browser.get("login").status_code == 503, place
        del own.says["authorization_endpoint"]
        clock.move(301)
        said = browser.at_issuer(own, browser.begun())
        for own.answers["/token"] in (_garbage, _large, _nothing, _redirect, _away):
            assert (browser.back(said).status_code, browser.is_in) == (503, False)
        arrived, over = threading.Event(), threading.Event()

        def drip(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n")
            arrived.set()
            while not over.wait(0.02):
                handler.wfile.write(b" ")

        own.answers["/token"] = drip
        monkeypatch.setattr(asking, "SECONDS", 60.0)
        waiting = threading.Thread(target=browser.back, args=(said,))
        waiting.start()
        try:
            assert arrived.wait(30.0)
            assert httpx.get(f"{browser.base}signin", timeout=30.0).status_code == 200
            assert waiting.is_alive()
            monkeypatch.setattr(asking, "SECONDS", 0.2)
            assert browser.back(said).status_code == 503
        finally:
            over.set()
            waiting.join()
        own.answers.clear()
        monkeypatch.undo()
        assert browser.back(said).status_code == 200  # the sign-in went on: the page loads itself again


def test_a_resolver_of_names_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client("console", "https://lake.example")
    flow = Issuer("https://idp.example", "lake", client=client).code_flow
    over, resolved = threading.Event(), threading.Event()

    def hanging(*_: object, **__: object) -> list[Any]:
        over.wait(30.0)
        resolved.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    monkeypatch.setattr(asking, "SECONDS", 0.1)
    assert flow is not None
    try:
        with pytest.raises(IssuerAway):
            flow.begin("")
        assert not resolved.is_set()
    finally:
        over.set()


def test_a_token_that_is_too_long_for_a_cookie_is_in_the_audit_log_once(
    own: OwnIssuer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "metastore.audit")
    browser, token = Browser(address), own.token(groups=["x" * 100] * 28)
    browser.client.post(f"{browser.base}signin", data={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    answer = httpx.get(f"{address}/v1/config?warehouse=lake.ice", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "metastore.audit"]
    assert [(line["outcome"], line["user"]) for line in lines] == [("signed_in", "4711"), ("refused", None)]


def test_a_client_of_the_issuer_needs_an_address(tmp_path: Path) -> None:
    for public in (
        "lake.example",
        "http://lake.example",
        "https://lake.example/?x",
        "https://a:b@lake.example",
        "https://ü_x.example",
    ):
        with pytest.raises(ms.InvalidArgument, match="public URL"):
            Client("console", public)
    with pytest.raises(ms.InvalidArgument):
        Client("", PUBLIC)


@pytest.mark.parametrize(
    ("public", "origin"),
    [
        ("https://Lake.Example:443/m", ("https", "lake.example")),
        ("https://münchen.example", ("https", "xn--mnchen-3ya.example")),
        ("http://[::1]:8443", ("http", "[::1]:8443")),
    ],
)
def test_the_public_origin_is_as_browsers_write_it(public: str, origin: tuple[str, str]) -> None:
    assert Client("console", public).origin == origin
