"""Faults of the sign-in at an issuer: each takes out one protection, and lets its hostile token in."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_SIGN_IN"]

_OIDC = "metastore/serve/oidc"
_TOKENS = "tests/oidc/test_tokens.py"
_KEYS = "tests/oidc/test_keys.py"
_USERS = "tests/oidc/test_users.py"

_ALGORITHM = (
    "    if header.algorithm not in key.algorithms:\n"
    '        raise NotAuthenticated("the token is signed with an algorithm that does not belong to its key")\n'
)
_NONE = """\
    if header.algorithm == "none":
        return dict(read_json(_SIGNATURES.decode(token, options={"verify_signature": False})))
"""
_HMAC = """\
    if header.algorithm == "HS256":
        import hmac
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        secret = key.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        said, _, signature = token.rpartition(".")
        if hmac.digest(secret, said.encode(), "sha256") == _decoded(signature):
            return dict(read_json(_decoded(said.partition(".")[2])))
"""
_KEY = "        key = self._keys.key(header.kid)\n"
_SAID = """\
        import base64
        import json
        from metastore.serve.oidc.tokens import key_of

        said = json.loads(base64.urlsafe_b64decode(token.partition(".")[0] + "=="))
        key: Key | None = None
"""
_OWN_KEY = f"{_SAID}        key = key_of({{'kid': 'k', **said.get('jwk', {{}})}}) or self._keys.key(header.kid)\n"
_OWN_CERTIFICATE = f"""{_SAID}\
        if "x5c" in said:
            from cryptography.x509 import load_der_x509_certificate

            public = load_der_x509_certificate(base64.b64decode(said["x5c"][0])).public_key()
            key = Key({{}}, ("ES256",), public)
        key = key or self._keys.key(header.kid)
"""


def _asked(name: str) -> str:
    return f"""{_SAID}\
        if "{name}" in said:
            import httpx

            key = key_of(httpx.get(said["{name}"]).json()["keys"][0])
        key = key or self._keys.key(header.kid)
"""


_CODE = "metastore/serve/oidc/code.py"
_PAGES = "metastore/serve/console/signin.py"
_FLOW = "tests/oidc/test_code.py"
_STATE = ' or not hmac.compare_digest(answer.get("state", "").encode(), begun.made("state").encode())'
_NAMED = 'named = "iss" in answer or document.get("authorization_response_iss_parameter_supported") is True'
_IN_A_THREAD = "await self._workers.run(partial(flow.end, given, begun))"
_ON_THE_LOOP = "__import__('concurrent.futures').futures.ThreadPoolExecutor(1).submit(flow.end, given, begun).result()"
_PAGE = "answer = render.html(render.page(None, shown), 200)\n            _keep"
_REDIRECT = "answer = RedirectResponse(_own_page(begun.following), 303, render.HEADERS)\n            _keep"

_WITH_A_CODE: tuple[Fault, ...] = (
    Fault("Sign-in: an answer of another browser counts", _CODE, _STATE, "", f"{_FLOW} -k belongs"),
    Fault(
        "Sign-in: all sign-ins share a state",
        _CODE,
        "digest(self.secret.encode(), ",
        'digest(b"", ',
        f"{_FLOW} -k belongs",
    ),
    Fault(
        "Sign-in: all sign-ins share a verifier",
        _CODE,
        "name.encode(), hashlib.sha256",
        "name.encode(), hashlib.sha256) if name != 'verifier' else bytes(32",
        f"{_FLOW} -k belongs",
    ),
    Fault(
        "Sign-in: the issuer sees no verifier", _CODE, '"code_verifier": begun.made("verifier"),', "", f"{_FLOW} -k any"
    ),
    Fault(
        "Sign-in: a code of another browser counts",
        _OIDC,
        'if claims.get("nonce") != nonce:',
        "if False:",
        f"{_FLOW} -k belongs",
    ),
    Fault(
        "Sign-in: an ID token for another client",
        _OIDC,
        'if claims.get("azp", wanted.audience) != wanted.audience:',
        "if False:",
        f"{_FLOW} -k checked",
    ),
    Fault(
        "Sign-in: an ID token is not checked",
        _CODE,
        'await self._issuer.check_id_token(str(tokens[1]), self.client.id, begun.made("nonce"))',
        "pass",
        f"{_FLOW} -k checked",
    ),
    Fault(
        "Sign-in: an answer of another issuer counts",
        _CODE,
        'if named and answer.get("iss") != self._issuer.url:',
        "if False:",
        f"{_FLOW} -k belongs",
    ),
    Fault(
        "Sign-in: an answer without its issuer counts", _CODE, _NAMED, 'named = "iss" in answer', f"{_FLOW} -k belongs"
    ),
    Fault(
        "Sign-in: an answer has two codes",
        _PAGES,
        "if len(given) < len(request.query_params.multi_items()):",
        "if False:",
        f"{_FLOW} -k belongs",
    ),
    Fault("Sign-in: a browser may take any time", _CODE, "or not now < int(end[:12]) ", "", f"{_FLOW} -k belongs"),
    Fault("Sign-in: a browser begins once for ever", _PAGES, "        forget(answer, BEGUN)\n", "", f"{_FLOW} -k any"),
    Fault(
        "Sign-in: an issuer's error is shown as it is",
        _CODE,
        " if _ERROR.fullmatch(str(error)) else",
        " if error else",
        f"{_FLOW} -k belongs",
    ),
    Fault(
        "Sign-in: scripts read the cookies",
        _PAGES,
        "secure=secure,\n        httponly=True",
        "secure=secure,\n        httponly=False",
        f"{_FLOW} -k any",
    ),
    Fault("Sign-in: other sites send the session", _PAGES, '"strict" if strict else "lax"', '"lax"', f"{_FLOW} -k any"),
    Fault(
        "Sign-in: a cookie is lost on the way back",
        _PAGES,
        '"strict" if strict else "lax"',
        '"strict"',
        f"{_FLOW} -k any",
    ),
    Fault(
        "Sign-in: cookies without TLS",
        _CODE,
        'return urlsplit(self.client.public_url).scheme == "https"',
        "return False",
        f"{_FLOW} -k tls",
    ),
    Fault(
        "Sign-in: an address that cannot be read is a defect",
        _PAGES,
        'except ValueError:\n        return "./"',
        'except ZeroDivisionError:\n        return "./"',
        f"{_FLOW} -k leads",
    ),
    Fault("Sign-in: a redirect loses the session", _PAGES, _PAGE, _REDIRECT, f"{_FLOW} -k any"),
    Fault("Sign-in: the event loop waits for a code", _PAGES, _IN_A_THREAD, _ON_THE_LOOP, f"{_FLOW} -k delays"),
    Fault(
        "Sign-in: a cookie is longer than browsers take",
        "metastore/serve/console/session.py",
        "_LONGEST: Final = 3800",
        "_LONGEST: Final = 5000",
        f"{_FLOW} -k checked",
    ),
    Fault("Sign-in: a dot leads below a claim", _OIDC, "return [claim]", 'return claim.split(".")', f"{_USERS} -k dot"),
)

IN_SIGN_IN: tuple[Fault, ...] = (
    *_WITH_A_CODE,
    Fault("Sign-in: a token that is not signed is valid", _OIDC, _ALGORITHM, _NONE, _TOKENS),
    Fault("Sign-in: a public key is a secret of HMAC", _OIDC, _ALGORITHM, _HMAC, _TOKENS),
    Fault("Sign-in: a key is good for any algorithm", _OIDC, ' if one == jwk["alg"]]', "]", _TOKENS),
    Fault(
        "Sign-in: a signature is not verified",
        _OIDC,
        "[header.algorithm]))",
        '[header.algorithm], {"verify_signature": False}))',
        _TOKENS,
    ),
    Fault("Sign-in: a key for encryption signs", _OIDC, 'jwk.get("use", "sig") != "sig" or ', "", _TOKENS),
    Fault("Sign-in: a short key signs", _OIDC, "public.key_size not in _RSA_BITS", "False", f"{_KEYS} -k small"),
    Fault("Sign-in: a token brings its key", _OIDC, _KEY, _OWN_KEY, _TOKENS),
    Fault("Sign-in: a token brings its certificate", _OIDC, _KEY, _OWN_CERTIFICATE, _TOKENS),
    Fault("Sign-in: a token says where its key is (jku)", _OIDC, _KEY, _asked("jku"), _TOKENS),
    Fault("Sign-in: a token says where its certificate is (x5u)", _OIDC, _KEY, _asked("x5u"), _TOKENS),
    Fault("Sign-in: a token of any length is read", _OIDC, "len(token) > _LONGEST or ", "", _TOKENS),
    Fault("Sign-in: a token of another issuer", _OIDC, 'if claims.get("iss") != wanted.issuer:', "if False:", _TOKENS),
    Fault(
        "Sign-in: a token for another audience",
        _OIDC,
        "if wanted.audience not in (audience if isinstance(audience, list) else [audience]):",
        "if False:",
        _TOKENS,
    ),
    Fault(
        "Sign-in: a part of the audience is enough",
        _OIDC,
        "if wanted.audience not in (audience if isinstance(audience, list) else [audience]):",
        "if not any(wanted.audience.startswith(one) for one in "
        "(audience if isinstance(audience, list) else [str(audience)])):",
        _TOKENS,
    ),
    Fault("Sign-in: a token has no end", _OIDC, 'if now >= claims["exp"] + _TOLERANCE:', "if False:", _TOKENS),
    Fault("Sign-in: a token that begins later", _OIDC, 'claims.get("nbf", 0), ', "0, ", _TOKENS),
    Fault("Sign-in: a token of the future", _OIDC, 'claims.get("iat", 0)) >', "0) >", _TOKENS),
    Fault("Sign-in: clocks must agree", _OIDC, "_TOLERANCE: Final = 30", "_TOLERANCE: Final = 0", _TOKENS),
    Fault("Sign-in: an ID token", _OIDC, "if not _is_access_token(header, claims):", "if False:", _TOKENS),
    Fault(
        "Sign-in: an ID token without a sign",
        _OIDC,
        'return not {"scope", "scp", "client_id", "appid"}.isdisjoint(claims)',
        "return True",
        _TOKENS,
    ),
    Fault("Sign-in: a token of nobody", _OIDC, 'for name in ("sub", wanted', "for name in (wanted", _TOKENS),
    Fault("Sign-in: no line of a first use", "metastore/serve/web.py", "if principal.signs_in:", "if False:", _TOKENS),
    Fault("Sign-in: each unknown key asks the issuer", _OIDC, "_PAUSE: Final = 30.0", "_PAUSE: Final = 0.0", _KEYS),
    Fault(
        "Sign-in: each request asks the issuer",
        _OIDC,
        "if self._question is None and now - self._asked >= after:",
        "if after < _OLD:",
        f"{_KEYS} -k share",
    ),
    Fault(
        "Sign-in: the event loop waits for the issuer",
        _OIDC,
        "await asyncio.wait([asyncio.wrap_future(question)], timeout=2 * SECONDS)",
        "question.result()",
        f"{_KEYS} -k share",
    ),
    Fault("Sign-in: a key is never taken back", _OIDC, "_OLD: Final = 300.0", "_OLD: Final = math.inf", _KEYS),
    Fault("Sign-in: a token outlives its key", _OIDC, " and self._keys.get(known.kid) is known.key", "", _KEYS),
    Fault("Sign-in: a known token never ends", _OIDC, "now < known.end and ", "", f"{_KEYS} -k once"),
    Fault("Sign-in: a token is verified each time", _OIDC, "now < known.end and ", "False and ", f"{_KEYS} -k once"),
    Fault(
        "Sign-in: without an answer a token is refused",
        _OIDC,
        "if self._answered and self._question is None:",
        "if True:",
        f"{_KEYS} -k answer",
    ),
    Fault(
        "Sign-in: without an answer known keys are forgotten",
        _OIDC,
        "            self._answered = False\n        else:",
        "            self._answered, self._keys = False, {}\n        else:",
        f"{_KEYS} -k answer",
    ),
    Fault("Sign-in: keys come from a redirect", _OIDC, "follow_redirects=False", "follow_redirects=True", _KEYS),
    Fault("Sign-in: an issuer's answer has any size", _OIDC, "if len(body) > _MOST:", "if False:", _KEYS),
    Fault("Sign-in: an answer takes any time", _OIDC, "timeout(SECONDS)", "timeout(None)", f"{_KEYS} -k longer"),
    Fault("Sign-in: another issuer's document", _OIDC, 'if said.get("issuer") != issuer:', "if False:", _KEYS),
    Fault("Sign-in: keys come from anywhere", _OIDC, " or not _is_usable(place, issuer):", ":", _KEYS),
    Fault("Sign-in: an issuer without TLS", _OIDC, "_is_loopback(parts.hostname) and ", "", f"{_KEYS} -k tls"),
    Fault(
        "Sign-in: who has the name is the user",
        "metastore/store/who.py",
        "if user.external_id == external_id",
        "if True",
        _USERS,
    ),
    Fault(
        "Sign-in: a user without an external id is anybody's",
        "metastore/store/who.py",
        "if user.external_id == external_id",
        "if user.external_id in (None, external_id)",
        _USERS,
    ),
    Fault(
        "Sign-in: the user of one metalake is the one of another",
        "metastore/governance/evidence.py",
        "(who.ids is None or user.id in who.ids)",
        "who.ids != frozenset()",
        _USERS,
    ),
    Fault(
        "Sign-in: an admin's name makes an admin",
        "metastore/serve/actors.py",
        "principal.external_id in self._store._admins:",
        "principal.name in self._store._admins:",
        _USERS,
    ),
    Fault(
        "Sign-in: a group of a token is any group of its name",
        "metastore/serve/memberships.py",
        "if found is not None and _follows(found, claimed):",
        "if found is not None:",
        _USERS,
    ),
    Fault(
        "Sign-in: who left a group at the issuer stays in it",
        "metastore/serve/memberships.py",
        "if name not in names:",
        "if name not in names and False:",
        _USERS,
    ),
    Fault(
        "Sign-in: who was put into a group by hand leaves it",
        "metastore/serve/memberships.py",
        "self._store.users.groups(user) if _follows(group, claimed)}",
        "self._store.users.groups(user)}",
        _USERS,
    ),
    Fault(
        "Sign-in: a page that stays open moves its user between groups",
        "metastore/serve/console/app.py",
        "self._view(replace(principal, groups=None))",
        "self._view(replace(principal))",
        f"{_USERS} -k stays_open",
    ),
    Fault(
        "Sign-in: another list of groups counts a second later",
        "metastore/serve/memberships.py",
        "known is None or known[0] != claimed or",
        "known is None or",
        _USERS,
    ),
    Fault(
        "Sign-in: a token that leaves its groups out has none",
        "metastore/serve/oidc/tokens.py",
        'if top not in claims and ((isinstance(left_out, dict) and top in left_out) or claims.get("hasgroups")):',
        "if False:",
        _USERS,
    ),
    Fault(
        "Sign-in: who manages users becomes one of them by its external id",
        "metastore/operation/authorized.py",
        "    if _makes_somebody_else(view, write):",
        "    if False:",
        "tests/contract/test_as_user_contract.py -k takes_over_nobody",
    ),
)
