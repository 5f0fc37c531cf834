"""Remove the comments from a statement before it is sent.

The statements contain their reasons, in lines that begin with ``--``. The server does not need these lines, and psycopg
parses a statement of more than 4,096 characters at each call. So each module removes them once, at its import.
"""

from __future__ import annotations

import re

_COMMENT_LINE = re.compile(r"^[ \t]*--.*\n", re.MULTILINE)


def without_comments(text: str) -> str:
    """Return a statement, or a part of one, without the lines that are comments and without an empty first line.

    A comment behind code on the same line is not removed: write none there.
    """
    return _COMMENT_LINE.sub("", text).removeprefix("\n")
