"""``python -m tests.aio`` writes the types of the async API again."""

from __future__ import annotations

from tests.aio.stubs import STUB, generated

STUB.write_text(generated(), encoding="utf-8")
