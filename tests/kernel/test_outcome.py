"""What a call came to, and what follows: the table of the contract, row by row (X4, V8, E2, E3, E11)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rerail.errors import NotDone, RateLimited, ToolError
from rerail.kernel.foreign import certainty_of, never_sent, status_of
from rerail.kernel.outcome import Case, Certainty, Follows, Saw, as_declared, follows, of_status
from rerail.plan.step import Effect

DONE, NOT_DONE, LOST = Certainty.DONE, Certainty.NOT_DONE, Certainty.LOST
LADDER, DOUBT, SUCCEED, SAME_KEY = Follows.LADDER, Follows.DOUBT, Follows.SUCCEED, Follows.SAME_KEY
NONE, THERE, ABSENT, PARTIAL, UNKNOWN = Saw.NONE, Saw.THERE, Saw.ABSENT, Saw.PARTIAL, Saw.UNKNOWN
DISBELIEVED = Saw.DISBELIEVED

# The rows of V8's table for a `once` call: what it came to, what a look says, what else is known, and what follows.
ROWS: list[tuple[Certainty, tuple[Saw, ...], dict[str, bool], Follows]] = [
    (DONE, (NONE, THERE, UNKNOWN), {}, SUCCEED),
    (DONE, (ABSENT,), {}, LADDER),
    (DONE, (PARTIAL, DISBELIEVED), {}, DOUBT),
    (NOT_DONE, (PARTIAL,), {}, DOUBT),
    (LOST, (PARTIAL,), {}, DOUBT),
    (LOST, (PARTIAL,), {"covered": True}, DOUBT),
    (NOT_DONE, (NONE, ABSENT, UNKNOWN, DISBELIEVED), {}, LADDER),
    (NOT_DONE, (THERE,), {}, DOUBT),
    (NOT_DONE, (THERE,), {"probed": True}, SUCCEED),
    (LOST, (THERE,), {}, SUCCEED),
    (LOST, (THERE,), {"acting": True}, SUCCEED),
    (LOST, (NONE, ABSENT, UNKNOWN), {"covered": True}, SAME_KEY),
    (LOST, (NONE, ABSENT, UNKNOWN), {"covered": True, "acting": True}, SAME_KEY),
    (LOST, (ABSENT,), {}, LADDER),
    (LOST, (NONE, UNKNOWN, DISBELIEVED), {}, DOUBT),
    (LOST, (NONE, ABSENT, UNKNOWN), {"acting": True}, DOUBT),
    (NOT_DONE, (NONE, UNKNOWN), {"lost_before": True}, DOUBT),
    (NOT_DONE, (NONE, ABSENT, UNKNOWN), {"lost_before": True, "covered": True}, SAME_KEY),
    (NOT_DONE, (ABSENT,), {"lost_before": True}, LADDER),
    (NOT_DONE, (THERE,), {"lost_before": True}, SUCCEED),
]


@pytest.mark.parametrize(("certainty", "seen", "more", "what"), ROWS)
def test_v8_every_row_of_a_once_call(
    certainty: Certainty, seen: tuple[Saw, ...], more: dict[str, bool], what: Follows
) -> None:
    """V8, X4, E2, E11: the table of the contract."""
    for saw in seen:
        assert follows(Case(Effect.ONCE, certainty, saw, **more)) is what


@pytest.mark.parametrize("effect", [Effect.READ, Effect.REPEATABLE])
def test_x4_what_may_be_repeated_is(effect: Effect) -> None:
    """X4, V8: for these tools all of it is an ordinary failure, unless a look brings the output."""
    for certainty, saw, lost, acting in itertools.product((NOT_DONE, LOST), Saw, (False, True), (False, True)):
        case = Case(effect, certainty, saw, lost_before=lost, acting=acting)
        assert follows(case) is LADDER
        assert follows(Case(effect, DONE, DISBELIEVED)) is LADDER
        assert follows(case._replace(output=True)) is (SUCCEED if saw is THERE else LADDER)


def test_x4_no_once_call_is_free_while_an_attempt_is_lost() -> None:
    """X4: only a settled absence of a call that is over, or the same key, lets it be made again."""
    flags = [dict(zip(("lost_before", "covered", "probed", "output", "acting"), some, strict=True))
             for some in itertools.product((False, True), repeat=5)]  # fmt: skip
    for certainty, saw, more in itertools.product((NOT_DONE, LOST), Saw, flags):
        what = follows(Case(Effect.ONCE, certainty, saw, **more))
        lost = certainty is LOST or more["lost_before"]
        if lost and what is LADDER:
            assert saw is ABSENT and not more["acting"] and not more["covered"]
        if what is SAME_KEY:
            assert lost and more["covered"] and saw not in (THERE, PARTIAL)
        if saw is PARTIAL:
            assert what is DOUBT


def chained(error: BaseException, *causes: BaseException, context: bool = False) -> BaseException:
    for cause in causes:
        if context:
            error.__context__ = cause
        else:
            error.__cause__ = cause
        cause.__suppress_context__ = True
    return error


@pytest.mark.parametrize(
    ("error", "certainty"),
    [
        (ToolError("no"), NOT_DONE), (RateLimited("later"), NOT_DONE), (NotDone(KeyError("x")), NOT_DONE),
        (NotDone("x"), NOT_DONE), (ToolError("?", lost=True), LOST),
        (RuntimeError("x"), LOST), (KeyError("x"), LOST), (AssertionError(), LOST), (SystemExit(1), LOST),
        (ConnectionRefusedError("x"), LOST), (TimeoutError(), LOST), (MemoryError(), LOST),
        (chained(ToolError("no"), RuntimeError("x")), LOST), (chained(ToolError("no"), ToolError("x")), NOT_DONE),
        (chained(ToolError("no"), TimeoutError(), context=True), LOST),
        (chained(ToolError("no"), chained(ToolError("x"), OSError("y"))), LOST),
        (chained(ToolError("no", lost=False), RuntimeError("x")), NOT_DONE),
        (chained(RateLimited("later"), RuntimeError("x")), LOST),
        (chained(RateLimited("later", lost=False), RuntimeError("x")), NOT_DONE),
        (chained(ToolError("no"), NotDone(RuntimeError("x"))), NOT_DONE),
    ],
)  # fmt: skip
def test_x4_only_what_says_so_is_not_done(error: BaseException, certainty: Certainty) -> None:
    """X4: an error that says nothing is lost, and so is a refusal raised from, or while handling, such a one."""
    assert certainty_of(error) is certainty


def test_x4_raised_while_handling_is_seen_in_real_code() -> None:
    """X4: also with `from None`, which only hides the cause from tracebacks."""
    found: list[Certainty] = []
    for how in ("from error", "plain", "from none"):
        try:
            try:
                raise OSError("in the middle")
            except OSError as error:
                if how == "from error":
                    raise ToolError("no") from error
                if how == "plain":
                    raise ToolError("no")  # noqa: B904
                raise ToolError("no") from None
        except ToolError as raised:
            found.append(certainty_of(raised))
    assert found == [LOST] * 3


@pytest.mark.parametrize(
    ("status", "certainty"),
    [(400, NOT_DONE), (404, NOT_DONE), (409, NOT_DONE), (425, NOT_DONE), (429, NOT_DONE), (408, LOST), (500, LOST),
     (502, LOST), (503, LOST), (504, LOST), (301, LOST), (302, LOST), (307, LOST), (None, LOST)],
)  # fmt: skip
def test_x4_a_status_says_whether_one_request_was_done(status: int | None, certainty: Certainty) -> None:
    """X4: 4xx but 408 refuses; 503 does with Retry-After; everything else is lost."""
    assert of_status(status, retry_after=False) is certainty
    assert of_status(status, retry_after=True) is (NOT_DONE if status == 503 else certainty)


class Response:
    def __init__(self, status: int) -> None:
        self.status_code = status


class Raised(Exception):
    def __init__(self, **more: Any) -> None:
        super().__init__("x")
        vars(self).update(more)


def test_x4_by_status_reads_what_libraries_raise() -> None:
    """X4: httpx and requests carry a response, aiohttp and urllib a status; what was never sent says so by its type."""
    assert status_of(Raised(response=Response(404))) == 404 and status_of(Raised(status=503)) == 503
    assert status_of(Raised(status=True)) is None and status_of(ValueError()) is None
    for error, certainty in (
        (Raised(response=Response(404)), NOT_DONE), (Raised(response=Response(500)), LOST),
        (ConnectionRefusedError(), NOT_DONE), (Raised(reason=ConnectionRefusedError()), NOT_DONE),
        (chained(ConnectionRefusedError(), ConnectionResetError()), LOST), (ConnectionResetError(), LOST),
        (ValueError("x"), LOST), (ToolError("no"), NOT_DONE),
    ):  # fmt: skip
        said = as_declared(
            certainty_of(error), "by_status", status_of(error), retry_after=False, never_sent=never_sent(error)
        )
        assert said is certainty, error
