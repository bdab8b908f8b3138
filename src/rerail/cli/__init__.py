"""The command line: parse, call the façade, render views; no rules of its own."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    from rerail.cli.app import run

    return run(argv)
