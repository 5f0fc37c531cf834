"""``python s3_program.py PORT``: serve S3 on 127.0.0.1, one request at a time; write each request as a line of JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug import Response
from werkzeug.serving import WSGIRequestHandler, make_server


class Quiet(WSGIRequestHandler):
    """Writes no log of its own."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


BODY = "<Error><Code>AccessDenied</Code><Message>No</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>"
DENIED = Response(BODY, 403, mimetype="application/xml")


def main(port: int) -> None:
    """Serve until the process is ended."""
    moto = DomainDispatcherApplication(create_backend_app)

    def noted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        method, path, query = (environ[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING"))
        line = [method, path, query, environ.get("HTTP_RANGE"), signed and signed[1]]
        print(json.dumps(line), flush=True)
        application = DENIED if path.split("/")[1] == "forbidden" else moto
        answer: Iterable[bytes] = application(environ, start_response)
        return answer

    make_server("127.0.0.1", port, noted, threaded=False, request_handler=Quiet).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
