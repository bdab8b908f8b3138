"""What was recorded and is gone on purpose: `file/answer` or `file/answer/path` with `*` → why.

The record keeps what stands here; the test does not ask for it any more.
"""

from __future__ import annotations

GONE: dict[str, str] = {
    "cli/graph <heals> --svg": "graphs are a tree or Mermaid; the option is refused with what to do",
    "cli/store copy copy.db other.db": "export and import take its place; the command is refused with what to do",
}
