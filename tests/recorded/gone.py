"""What was recorded and is gone on purpose: `file/answer` or `file/answer/path` with `*` → why.

The record keeps what stands here; the test does not ask for it any more.
"""

from __future__ import annotations

GONE: dict[str, str] = {}
