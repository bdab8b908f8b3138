"""`python -m rerail.demo` is `rerail demo`."""

from __future__ import annotations

import sys

from rerail.demo import main

if __name__ == "__main__":
    sys.exit(main())
