"""What is told of eventful histories, whole: each event in words, in the views, in messages, and what is decided then.

The histories are those beside this file (lives that were simulated) and some that the newest version wrote. Whoever
means to tell something otherwise writes it anew with `python -m tests.kernel.lives.tell`, and looks at what changed.
"""

from __future__ import annotations

from itertools import zip_longest

import pytest
from tests.kernel.lives.tell import HERE, files, read, told


@pytest.mark.parametrize("name", files())
def test_the_same_history_is_told_the_same(name: str) -> None:
    """V1, I1, I4, I7, R7: state, views, previews and replays follow from the history alone; nothing else."""
    written = (HERE / f"{name}.txt").read_text("utf-8").splitlines()
    where = ""
    for now, then in zip_longest(told(*read(files()[name])), written, fillvalue=""):
        where = then if then.startswith("#") else where
        assert now == then, where
