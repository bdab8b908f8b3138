"""`python -m rerail.cli` is `rerail`."""

from __future__ import annotations

import sys

from rerail.cli import main

if __name__ == "__main__":
    sys.exit(main())
