"""Addresses of stores hold passwords: what is shown of them, in hints and errors (T4, I7)."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Here

from rerail.adapters.stores.remote import shown

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("postgresql://me:hunter2@db/x", "postgresql://me:***@db/x"),
        ("redis://:hunter2@[::1]:6379/0", "redis://:***@[::1]:6379/0"),
        ("redis://:hunter2@[::1:6379/0", "redis://…"),  # no address at all
        ("postgresql://me@db/x?password=hunter2&a=1", "postgresql://me@db/x?password=***&a=1"),
        ("postgresql://me@db/x?sslmode=on&sslpassword=hunter2", "postgresql://me@db/x?sslmode=on&sslpassword=***"),
        ("postgresql://me:p#hunter2@db/x", "postgresql://…"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("runs.db", "runs.db"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, seen: str) -> None:
    """I7: whoever reads over a shoulder, or a log, learns where the store is and nothing more."""
    assert shown(url) == seen


@pytest.mark.parametrize("words", [("ls",), ("show", "nobody"), ("doctor",), ("settings",), ("retry", "--all-failed")])
@pytest.mark.parametrize("kind", ["mystery", "postgresql"])
def test_no_command_repeats_a_password(here: Here, words: tuple[str, ...], kind: str) -> None:
    """I7: not in its answer, not in its error, not in the next command that it suggests."""
    done = here(*words, "--store", f"{kind}://me:{SECRET}@127.0.0.1:9/x")
    assert SECRET not in done.out + done.err and "Traceback" not in done.err
