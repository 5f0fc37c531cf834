"""A file that a caller names is read, or the error says why it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import metastore as ms
from metastore.arguments import text_in


def test_a_file_is_read_or_the_error_says_why_not(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    with pytest.raises(ms.InvalidArgument, match=r"^the token file .*tokens cannot be read: No such file"):
        text_in(file, "the token file")
    file.write_bytes(b"ann \xff")
    with pytest.raises(ms.InvalidArgument, match=r"cannot be read: it is not UTF-8$"):
        text_in(file, "the token file")
    file.write_text("ann ü", encoding="utf-8")
    assert text_in(file, "the token file") == "ann ü"
