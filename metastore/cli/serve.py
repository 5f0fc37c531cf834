"""``metastore serve``: serve the store over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

import typer
from rich.text import Text

from metastore.cli.context import Json, Reports
from metastore.cli.output import console, table, write, write_json, write_table
from metastore.cli.output import safe as printable
from metastore.cli.settings import Settings
from metastore.cli.times import parse_duration
from metastore.cli.vendors import vendor_of
from metastore.errors import InvalidArgument
from metastore.store import open_store

if TYPE_CHECKING:
    from metastore.serve.oidc import Issuer

__all__ = ["register"]

_WORKERS = 2
"""The default number of jobs that a server runs at once."""


def serve(
    ctx: typer.Context,
    host: Annotated[str, typer.Option("--host", help="The address to listen on. Loopback by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port to listen on.")] = 8181,
    warehouse: Annotated[
        list[str] | None,
        typer.Option(
            "--warehouse",
            metavar="METALAKE.CATALOG=PLACE",
            help="An Iceberg catalog and the folder or bucket of its tables; made if missing. Repeatable.",
            show_default=False,
        ),
    ] = None,
    credential: Annotated[
        list[str] | None,
        typer.Option(
            "--credential",
            metavar="METALAKE.CATALOG:KEY=VALUE",
            help="A credential for a warehouse's files, for its clients and the server. Repeatable.",
            show_default=False,
        ),
    ] = None,
    vend: Annotated[
        list[str] | None,
        typer.Option(
            "--vend",
            metavar="METALAKE.CATALOG:KEY=VALUE",
            help="Give clients short-lived keys for each table: of S3 (role=ARN), Azure (azure-account=NAME) or Google "
            "(gcs-bucket=NAME); duration=1h. Repeatable.",
            show_default=False,
        ),
    ] = None,
    allow_location: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-location",
            metavar="URL",
            help="A folder or bucket in which Iceberg's files may lie besides the warehouse's. Repeatable.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="A file: a user and a bearer token on each line.", show_default=False),
    ] = None,
    proxy_header: Annotated[
        str | None,
        typer.Option("--proxy-header", help="The header in which a proxy names the user.", show_default=False),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        typer.Option(
            "--oidc-issuer",
            metavar="URL",
            help="An OpenID Connect issuer that identifies clients. Needs --oidc-audience.",
            show_default=False,
        ),
    ] = None,
    oidc_audience: Annotated[
        str | None,
        typer.Option("--oidc-audience", help="The audience of the issuer's tokens: this service.", show_default=False),
    ] = None,
    oidc_user_claim: Annotated[
        str, typer.Option("--oidc-user-claim", metavar="CLAIM", help="The claim with the user's name.")
    ] = "sub",
    oidc_groups_claim: Annotated[
        str | None,
        typer.Option(
            "--oidc-groups-claim",
            metavar="CLAIM",
            help="The claim with the user's groups, or its /path. Needs --authorization.",
            show_default=False,
        ),
    ] = None,
    oidc_client_id: Annotated[
        str | None,
        typer.Option(
            "--oidc-client-id",
            metavar="ID",
            help="Sign browsers in at the issuer, as this client. Needs --public-url.",
            show_default=False,
        ),
    ] = None,
    oidc_client_secret_file: Annotated[
        Path | None,
        typer.Option(
            "--oidc-client-secret-file",
            metavar="FILE",
            help="The file with the client's secret. Without it the client is a public one.",
            show_default=False,
        ),
    ] = None,
    oidc_scope: Annotated[
        str, typer.Option("--oidc-scope", metavar="SCOPES", help="Scopes that the client requests besides openid.")
    ] = "",
    public_url: Annotated[
        str | None,
        typer.Option(
            "--public-url",
            metavar="URL",
            help="Where browsers reach this server. The issuer leads them back to console/callback below it.",
            show_default=False,
        ),
    ] = None,
    authorization: Annotated[
        bool, typer.Option("--authorization", help="Check in each request what the client's user may do.")
    ] = False,
    admin: Annotated[
        list[str] | None,
        typer.Option("--admin", metavar="NAME", help="A user who may do everything. Repeatable.", show_default=False),
    ] = None,
    iceberg: Annotated[
        bool, typer.Option("--iceberg/--no-iceberg", help="Speak the Iceberg REST protocol, below /iceberg.")
    ] = True,
    gravitino: Annotated[
        bool, typer.Option("--gravitino/--no-gravitino", help="Speak Gravitino's REST API, below /api.")
    ] = True,
    pages: Annotated[
        bool, typer.Option("--console/--no-console", help="Show the store as web pages, below /console/.")
    ] = True,
    reports: Reports = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Run jobs: commands, as the user of this server.")] = False,
    job_workers: Annotated[
        int | None,
        typer.Option("--job-workers", min=0, max=64, help=f"How many jobs it runs at once, with --jobs: {_WORKERS}."),
    ] = None,
    take_over_jobs: Annotated[
        bool,
        typer.Option("--take-over-jobs", help="With --jobs: also run jobs that came with a copy."),
    ] = False,
    gc: Annotated[
        bool, typer.Option("--gc/--no-gc", help="Delete old dropped entities and old history, on one server at a time.")
    ] = True,
    gc_retention: Annotated[
        str,
        typer.Option("--gc-retention", help="How long gc keeps dropped and replaced rows. For example 7d, 12h, 30m."),
    ] = "7d",
    reveal: Annotated[
        list[str] | None,
        typer.Option(
            "--reveal",
            metavar="PREFIX",
            help="References that clients may get as credentials, such as env:LAKE_. Repeatable.",
            show_default=False,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", help="Speak TLS with this certificate, and its chain, in PEM.", show_default=False),
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The key of the certificate, in PEM.", show_default=False)
    ] = None,
    max_connections: Annotated[
        int, typer.Option("--max-connections", min=1, help="The largest number of connections at once.")
    ] = 512,
    header_timeout: Annotated[
        float, typer.Option("--header-timeout", min=0.1, help="How long a request's header may take (seconds).")
    ] = 10.0,
    body_timeout: Annotated[
        float, typer.Option("--body-timeout", min=0.1, help="How long a request's body may take (seconds).")
    ] = 60.0,
    idle_timeout: Annotated[
        float, typer.Option("--idle-timeout", min=0.1, help="How long a connection may be idle (seconds).")
    ] = 60.0,
    check: Annotated[
        bool,
        typer.Option("--check", help="Serve nothing: report unsafe settings. The exit code is 1 if there are any."),
    ] = False,
    json: Json = False,
) -> None:
    """Serve the store over HTTP until SIGTERM.

    Needs the extra [serve], and [oidc] for an issuer. Without --token-file, --oidc-issuer and --proxy-header nothing
    checks who a client is, and it listens on loopback only. With --authorization a client may do what its user may do
    (docs/governance.md); without it, each client may do everything. With --jobs it runs jobs of Gravitino's API:
    commands, as the user of this server.
    """
    try:
        from metastore import serve as serving  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("serve needs more: pip install 'versioned-metastore[serve]'") from None
    settings: Settings = ctx.obj
    if (tls_cert is None) != (tls_key is None):
        raise InvalidArgument("TLS needs both --tls-cert and --tls-key")
    if not (iceberg or gravitino or pages):
        typer.echo("metastore: --no-iceberg, --no-gravitino and --no-console: nothing is left to serve", err=True)
        raise typer.Exit(2)
    if admin and not authorization:
        raise InvalidArgument("--admin needs --authorization: without it each client may do everything")
    workers = _workers_of(job_workers, jobs=jobs, take_over=take_over_jobs)
    _check_reveals(reveal or (), gravitino=gravitino)
    pair = (tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    limits = serving.Limits(max_connections, header_timeout, body_timeout, idle_timeout)
    retention = parse_duration(gc_retention)
    places = _places(warehouse or [])
    for place in (*places.values(), *(allow_location or ())):
        _check_place(place)
    own = _by_warehouse(credential or [], "a credential")
    vendors = {name: vendor_of(given, own.get(name)) for name, given in _by_warehouse(vend or [], "a vendor").items()}
    client = (oidc_client_id, oidc_client_secret_file, oidc_scope, public_url if pages else None)
    issuer = _issuer(
        oidc_issuer, oidc_audience, oidc_user_claim, oidc_groups_claim, client, authorization=authorization
    )
    principals = serving.Principals({}, proxy_header, issuer)
    build = partial(
        serving.application,
        warehouses=places,
        take_over_jobs=take_over_jobs,
        reveals=reveal or (),
        credentials={**own, **vendors},
        authorization=authorization,
        allowed_locations=allow_location or (),
        iceberg=iceberg,
        gravitino=gravitino,
        body_timeout=body_timeout,
        gc_retention=retention if gc else None,
    )
    if check:
        limits.check()
        with open_store("memory://") as nothing:  # raises the same error as the start of the server
            build(nothing, principals=replace(principals, tokens={b"": ""}), console=False)
        files = (token_file, oidc_client_secret_file)
        _check(settings, host, files, proxy_header is not None, issuer is not None, pair, authorization, json)
    tls = None if pair is None else serving.Tls(*pair)
    with settings.open(admin or (), makes=True) as store:
        principals = replace(principals, tokens=serving.TokenFile(token_file) if token_file else {})
        app = build(store, principals=principals, job_workers=workers, console=pages, reports=reports)
        spoken = [path for path, wanted in (("/iceberg", iceberg), ("/api", gravitino), ("/console/", pages)) if wanted]
        scheme = "http" if tls is None else "https"

        def listens(actual: int) -> None:
            write(console(), f"Serving {scheme}://{host}:{actual} ({', '.join(spoken)}) until SIGTERM.")

        serving.serve_application(
            app,
            host=host,
            port=port,
            authenticates=principals.authenticates,
            limits=limits,
            tls=tls,
            listens=listens,
        )


def _check(
    settings: Settings,
    host: str,
    secrets: tuple[Path | None, Path | None],
    proxy: bool,
    issuer: bool,
    tls: tuple[Path, Path] | None,
    authorization: bool,
    json: bool,
) -> NoReturn:
    """Show which settings are safe and which are not, and exit."""
    from metastore.serve.safety import findings  # noqa: PLC0415  (only this needs it)

    found = list(
        findings(
            settings.url,
            host=host,
            token_file=secrets[0],
            client_secret=secrets[1],
            proxy=proxy,
            issuer=issuer,
            tls=tls,
            authorization=authorization,
        )
    )
    safe = all(one.safe for one in found)
    if json:
        write_json({"safe": safe, "checks": [one.to_dict() for one in found]})
    else:
        rows = table("Check", "Safe", "Found")
        for one in found:
            rows.add_row(one.check, "yes" if one.safe else "NO", Text(printable(one.found)))
        write_table(console(), rows)
    raise typer.Exit(0 if safe else 1)


def _workers_of(given: int | None, *, jobs: bool, take_over: bool) -> int:
    """Return how many jobs the server runs at once. Raises InvalidArgument."""
    if not jobs and (take_over or given is not None):
        raise InvalidArgument("--job-workers and --take-over-jobs need --jobs: without it this server runs no jobs")
    return 0 if not jobs else _WORKERS if given is None else given


def _check_reveals(prefixes: Sequence[str], *, gravitino: bool) -> None:
    if prefixes and not gravitino:
        raise InvalidArgument("--reveal is for clients of Gravitino's API; leave out --no-gravitino")
    if not all(one.startswith(("env:", "file:")) for one in prefixes):
        raise InvalidArgument("--reveal takes a prefix of references that includes their kind, such as env:LAKE_")


def _issuer(
    url: str | None,
    audience: str | None,
    user_claim: str,
    groups_claim: str | None,
    client: tuple[str | None, Path | None, str, str | None],
    *,
    authorization: bool,
) -> Issuer | None:
    """Return the issuer of the options; None: they name no issuer. Raises InvalidArgument."""
    if groups_claim is not None and not (url and authorization):
        raise InvalidArgument(
            "--oidc-groups-claim needs --oidc-issuer and --authorization: a server that does not check rights ignores "
            "groups; add these options, or leave out the claim"
        )
    id, secret_file, scope, public_url = client
    if id is None and (secret_file or scope or public_url):
        raise InvalidArgument("--oidc-client-secret-file, --oidc-scope and --public-url need --oidc-client-id")
    if id is not None and (url is None or public_url is None):
        raise InvalidArgument("--oidc-client-id needs --oidc-issuer, --public-url, and the console")
    if url is None and audience is None:
        return None
    if url is None or audience is None:
        raise InvalidArgument("an issuer needs both --oidc-issuer and --oidc-audience")
    try:
        from metastore.serve.oidc import Client, Issuer, secret_of  # noqa: PLC0415  (an extra of its own)
    except ImportError:
        raise InvalidArgument("--oidc-issuer needs more: pip install 'versioned-metastore[serve,oidc]'") from None
    secret = secret_of(secret_file) if secret_file else None
    known = Client(id, public_url, secret, scope) if id is not None and public_url is not None else None
    return Issuer(url, audience, user_claim=user_claim, groups_claim=groups_claim, client=known)


def _places(texts: list[str]) -> dict[str, str]:
    """Return the place of each warehouse."""
    places: dict[str, str] = {}
    for text in texts:
        name, _, place = text.partition("=")
        if not name or not place:
            raise InvalidArgument(f"a warehouse is written metalake.catalog=place, not {text!r}")
        if name in places:
            raise InvalidArgument(f"the warehouse {name} is named twice; it has one place")
        places[name] = place
    return places


def _check_place(place: str) -> None:
    from pyiceberg.io import SCHEMA_TO_FILE_IO  # noqa: PLC0415  (an extra of its own)

    parts = urlsplit(place)
    is_local = parts.scheme in ("", "file")  # PyIceberg reads file://folder as a folder in the server's working folder
    is_whole = parts.path.startswith("/") and not parts.netloc if is_local else parts.netloc or parts.path[:1] == "/"
    if not is_whole or parts.scheme not in ("", *SCHEMA_TO_FILE_IO):
        known = ", ".join(SCHEMA_TO_FILE_IO)
        raise InvalidArgument(f"files cannot be in {place!r}; write /folder or URL, with one of {known}")


def _by_warehouse(texts: list[str], what: str) -> dict[str, dict[str, str]]:
    """Return the settings of each warehouse. A message never repeats a value, which may be a secret."""
    settings: dict[str, dict[str, str]] = {}
    for text in texts:
        place, _, value = text.partition("=")
        name, _, key = place.rpartition(":")
        if not name or not key or not value:
            raise InvalidArgument(f"{what} is written metalake.catalog:key=value, not {place[:80]!r}=…")
        settings.setdefault(name, {})[key] = value
    return settings


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(serve)
