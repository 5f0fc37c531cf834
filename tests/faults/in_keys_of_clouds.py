"""Faults of the short-lived keys of Azure and of Google: they open more, for longer, or show a secret."""

from __future__ import annotations

from tests.faults.fault import Fault

__all__ = ["IN_KEYS_OF_CLOUDS"]

_SCOPES = "tests/iceberg/test_vending_scopes.py"
_TESTS = "tests/iceberg/test_vending_clouds.py"
_FOLDERS = "metastore/serve/iceberg/folders.py"
_DIRECTORY = "metastore/serve/iceberg/directory.py"
_AZURE = "metastore/serve/iceberg/azure_sas.py"
_BOUNDARY = "metastore/serve/iceberg/boundary.py"
_GCS = "metastore/serve/iceberg/gcs_tokens.py"
_WAREHOUSES = "metastore/serve/iceberg/warehouses.py"

IN_KEYS_OF_CLOUDS: tuple[Fault, ...] = (
    Fault(
        "Clouds: a location with .. gets a key",
        _FOLDERS,
        '{"", ".", ".."}',
        '{"", "."}',
        _SCOPES,
    ),
    Fault(
        "Clouds: a location with an encoded slash gets a key",
        _FOLDERS,
        "|%[0-9A-Fa-f]{2}",
        "",
        _SCOPES,
    ),
    Fault(
        "Clouds: a location that clients cut at a question mark gets a key",
        _FOLDERS,
        "?#]",
        "]",
        _SCOPES,
    ),
    Fault(
        "Azure: a location in another account gets a key",
        _DIRECTORY,
        "found[2] != host",
        "False",
        _SCOPES,
    ),
    Fault(
        "Azure: a backslash or the dots at the end of a part get a key",
        _DIRECTORY,
        "_CHANGED.search(path)",
        "False",
        _SCOPES,
    ),
    Fault(
        "Azure: each key reads and writes",
        _DIRECTORY,
        "if right in rights)",
        "if rights)",
        _SCOPES,
    ),
    Fault(
        "Azure: a key opens the folder around the table's",
        _AZURE,
        "scope.path,",
        'scope.path.rpartition("/")[0],',
        f"{_TESTS} -k stolen",
    ),
    Fault(
        "Azure: a key travels without TLS",
        _AZURE,
        'protocol="https"',
        'protocol="https,http"',
        f"{_TESTS} -k fields",
    ),
    Fault(
        "Azure: a key outlives what its client is told",
        _AZURE,
        "expiry=ends",
        "expiry=ends + self._life",
        f"{_TESTS} -k fields",
    ),
    Fault(
        "Azure: clients get the server's identity",
        _AZURE,
        "if key not in _IDENTITY",
        "if key",
        f"{_TESTS} -k fields",
    ),
    Fault(
        "Azure: the log shows what the account said",
        _AZURE,
        "{_said(error)}",
        "{error}",
        f"{_TESTS} -k 'refuses and azure'",
    ),
    Fault(
        "Azure: a slow account is asked again and again",
        _AZURE,
        '"retry_total": 0',
        '"retry_total": 3',
        f"{_TESTS} -k 'nothing and azure'",
    ),
    Fault(
        "Azure: a token of one account on the command line is not taken for a secret",
        "metastore/serve/iceberg/credentials.py",
        " or key.startswith(_SECRETS_OF_ACCOUNTS)",
        "",
        f"{_TESTS} -k operator",
    ),
    Fault(
        "Google: the boundary of a/ opens ab/ too",
        _BOUNDARY,
        'found[2] + "/"',
        "found[2]",
        _SCOPES,
    ),
    Fault(
        "Google: a quote in a location ends the string of the condition",
        _BOUNDARY,
        '.replace("\'", "\\\\\'")',
        "",
        _SCOPES,
    ),
    Fault(
        "Google: a backslash in a location begins an escape",
        _BOUNDARY,
        '.replace("\\\\", "\\\\\\\\")',
        "",
        _SCOPES,
    ),
    Fault(
        "Google: a location in another bucket gets a key",
        _BOUNDARY,
        "found[1] != bucket",
        "False",
        _SCOPES,
    ),
    Fault(
        "Google: who may write lists, too",
        _BOUNDARY,
        "_WRITE, objects)",
        '_WRITE, f"{objects} || {listed}")',
        _SCOPES,
    ),
    Fault(
        "Google: each key writes",
        _BOUNDARY,
        "if WRITES in rights",
        "if rights",
        _SCOPES,
    ),
    Fault(
        "Google: a token has no boundary",
        _GCS,
        "                additional_options=_boundary(scope),\n",
        "",
        f"{_TESTS} -k stolen",
    ),
    Fault(
        "Google: clients get the server's own token",
        _GCS,
        'str(made["access_token"])',
        "own",
        f"{_TESTS} -k form",
    ),
    Fault(
        "Google: a token that ends soon is exchanged again",
        _GCS,
        "_left(self._identity) < _LEFT",
        "_left(self._identity) <= 0",
        f"{_TESTS} -k no_longer",
    ),
    Fault(
        "Google: the log shows what the token service said",
        _GCS,
        "{_said(error)}",
        "{error}",
        f"{_TESTS} -k 'refuses and google'",
    ),
    Fault(
        "Google: a call takes as long as the token service does",
        _GCS,
        '"timeout": _TIMEOUT',
        '"timeout": 60',
        f"{_TESTS} -k 'nothing and google'",
    ),
    Fault(
        "Clouds: clients of Azure are not told where the next key is",
        "metastore/serve/iceberg/renewal.py",
        ' or key.startswith(f"{ends}.")',
        "",
        f"{_TESTS} -k 'kept and azure'",
    ),
    Fault(
        "Clouds: two users share a kept key",
        "metastore/serve/iceberg/short_lived.py",
        "key = (location, principal,",
        'key = (location, "",',
        f"{_TESTS} -k one_user",
    ),
    Fault(
        "Clouds: a location outside of the warehouse gets a key",
        _WAREHOUSES,
        "source is None or not is_below(location, self._places[root])",
        "source is None",
        f"{_TESTS} -k not_even_asked",
    ),
    Fault(
        "Clouds: a load goes on without a key while the token service is away",
        _WAREHOUSES,
        """            if call.is_read:
                message""",
        """            if False:
                message""",
        f"{_TESTS} -k refuses",
    ),
    Fault(
        "Clouds: a create fails while the token service is away",
        _WAREHOUSES,
        """            if call.is_read:
                message""",
        """            if True:
                message""",
        f"{_TESTS} -k refuses",
    ),
)
