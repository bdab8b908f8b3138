"""`python -m rerail.demo` is `rerail demo`."""

from __future__ import annotations

import sys

from rerail.cli.app import run

if __name__ == "__main__":
    sys.exit(run(["demo", *sys.argv[1:]]))
