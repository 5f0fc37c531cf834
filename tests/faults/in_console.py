"""Faults of the console: sessions, rights, secrets, streams."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_CONSOLE"]

_CONSOLE = "metastore/serve/console"
_SIGN_IN = "tests/console/test_signin.py"
_RIGHTS = "tests/console/test_rights.py"
_PAGES = "tests/console/test_pages.py"
_LIVE = "tests/console/test_live.py"

IN_CONSOLE: tuple[Fault, ...] = (
    Fault(
        "Console: older changes are sought by the text of a position, which has the timeline first",
        f"{_CONSOLE}/feed.py",
        "if until is not None and order_of(one.position) >= until:",
        "if before is not None and one.position >= before:",
        _PAGES,
    ),
    Fault(
        "Console: a session never ends",
        f"{_CONSOLE}/session.py",
        " or int(end) <= _now()",
        "",
        _SIGN_IN,
    ),
    Fault(
        "Console: anybody can move the end of a session",
        f"{_CONSOLE}/session.py",
        'f"metastore console {end}".encode()',
        'b"metastore console"',
        _SIGN_IN,
    ),
    Fault(
        "Console: a token that was taken out keeps its sessions",
        f"{_CONSOLE}/session.py",
        "user = self.principals.tokens.get(self._digest(end, proof))",
        "user = self.__dict__.setdefault(proof, self.principals.tokens.get(self._digest(end, proof)))",
        _SIGN_IN,
    ),
    Fault(
        "Console: a page of another origin signs a browser in",
        f"{_CONSOLE}/signin.py",
        'return request.headers.get("sec-fetch-site") == "same-origin"',
        "return True",
        _SIGN_IN,
    ),
    Fault(
        "Console: a sign-in leads to any host",
        f"{_CONSOLE}/signin.py",
        "if parts.scheme or parts.netloc or name",
        "if False and name",
        _SIGN_IN,
    ),
    Fault(
        "Console: pages show everything to everybody",
        f"{_CONSOLE}/app.py",
        "            view = self._view(principal)\n",
        "            view = self._store\n",
        _RIGHTS,
    ),
    Fault(
        "Console: contention is shown to users",
        f"{_CONSOLE}/contention.py",
        "    if asked.is_restricted:\n",
        "    if False:\n",
        _RIGHTS,
    ),
    Fault(
        "Console: a stream sends what its user does not see",
        f"{_CONSOLE}/hub.py",
        "seen[user] = _seen(view, before, position, known)",
        "seen[user] = all_items",
        _LIVE,
    ),
    *(
        Fault(f"Console: the trouble of one user stops all streams, in {where}", f"{_CONSOLE}/hub.py", old, new, _LIVE)
        for where, old, new in (
            ("a look", "except (MetastoreError, _TooMuch) as error:", "except ZeroDivisionError as error:"),
            (
                "a welcome",
                "except MetastoreError as error:\n            _missed",
                "except BufferError as error:\n            _missed",
            ),
        )
    ),
    Fault(
        "Console: a stream outlives its session",
        f"{_CONSOLE}/hub.py",
        "                listener.end()\n                self.remove(listener)\n",
        "                pass\n",
        _LIVE,
    ),
    Fault(
        "Console: a stream that comes during a look misses what the look has read",
        f"{_CONSOLE}/hub.py",
        "        listeners = list(self._listeners)\n",
        "        self._listeners |= set(self._new)\n        listeners = list(self._listeners)\n",
        _LIVE,
    ),
    Fault(
        "Console: a change is sent twice",
        f"{_CONSOLE}/live.py",
        "if item.position > listener.sent:",
        "if True:",
        _LIVE,
    ),
    Fault(
        "Console: a secret in plain text is shown",
        f"{_CONSOLE}/words.py",
        "return MASK if is_hidden(key)",
        "return MASK if False",
        _PAGES,
    ),
    Fault(
        "Console: names are markup",
        f"{_CONSOLE}/render.py",
        "autoescape=True",
        "autoescape=False",
        _PAGES,
    ),
)
