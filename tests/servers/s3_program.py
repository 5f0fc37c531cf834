"""``python s3_program.py PORT``: serve S3 on 127.0.0.1, one request at a time; write each request as a line of JSON.

moto ignores the policies of sessions (AssumeRole). So this program keeps each, and refuses what it does not allow.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug import Response
from werkzeug.serving import WSGIRequestHandler, make_server

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.policies import allows


class Quiet(WSGIRequestHandler):
    """Writes no log of its own."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


BODY = "<Error><Code>AccessDenied</Code><Message>No</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>"
DENIED = Response(BODY, 403, mimetype="application/xml")
REFUSED = Response(f"<ErrorResponse>{BODY}</ErrorResponse>", 403, mimetype="text/xml")
"""The token service's form of the same."""
POLICIES: dict[str, str] = {}
"""The policy of each session, by its access key id."""


def needs(method: str, path: str, query: dict[str, str], source: str, body: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield the actions that a request needs, the resource of each, and the prefix that it lists.

    https://docs.aws.amazon.com/AmazonS3/latest/API/ says it for each operation.
    """
    bucket, _, key = path.lstrip("/").partition("/")
    there, prefix = f"arn:aws:s3:::{bucket}/{key}", query.get("prefix", "")
    if source:
        yield "s3:GetObject", f"arn:aws:s3:::{unquote(source).lstrip('/')}", ""
    if not key and method == "POST" and "delete" in query:
        for name in re.findall(r"<Key>([^<]*)</Key>", body.decode()):
            yield "s3:DeleteObject", f"arn:aws:s3:::{bucket}/{name}", ""
    elif not key:
        listing = "s3:ListBucketMultipartUploads" if "uploads" in query else "s3:ListBucket"
        yield (listing if method in ("GET", "HEAD") else f"s3:{method}Bucket"), f"arn:aws:s3:::{bucket}", prefix
    elif method in ("GET", "HEAD"):
        yield ("s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject"), there, ""
    elif method == "DELETE":
        yield ("s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"), there, ""
    else:
        yield "s3:PutObject", there, ""


def main(port: int) -> None:
    """Serve until the process is ended."""
    moto = DomainDispatcherApplication(create_backend_app)

    def noted(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        signed = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        method, path, query = (environ[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING"))
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) if method == "POST" else b""
        if method == "POST":
            environ["wsgi.input"] = io.BytesIO(body)
        form = dict(parse_qsl(body.decode())) if b"Action=AssumeRole" in body else {}
        line = [method, path, query, environ.get("HTTP_RANGE"), signed and signed[1], form]
        print(json.dumps(line), flush=True)
        application = (REFUSED if form else DENIED) if path.split("/")[1] == "forbidden" else moto
        policy = POLICIES.get(signed[1]) if signed else None
        if policy is not None:
            asked = dict(parse_qsl(query, keep_blank_values=True))
            source = environ.get("HTTP_X_AMZ_COPY_SOURCE", "")
            for action, resource, prefix in needs(method, path.encode("latin-1").decode(), asked, source, body):
                if not allows(policy, action, resource, **({"prefix": prefix} if prefix else {})):
                    application = DENIED
        answer: Iterable[bytes] = application(environ, start_response)
        if "Policy" in form:
            answer = list(answer)
            if found := re.search(rb"<AccessKeyId>([^<]+)<", b"".join(answer)):
                POLICIES[found[1].decode()] = form["Policy"]
        return answer

    make_server("127.0.0.1", port, noted, threaded=False, request_handler=Quiet).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
