"""Objects of others: what they lack gets a default when they come in; what they say is read in one place (M3, M4)."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from rerail.codes import Category
from rerail.kernel.foreign import (
    MAX_CAUSES,
    MIND,
    STORE,
    TOOL,
    Said,
    as_mind,
    attribute,
    certainty_of,
    handled_lost,
    is_model,
    never_sent,
    roles_of,
    said_by,
    spec_of,
    type_names,
    with_defaults,
    wrapped_in,
)
from rerail.kernel.outcome import Certainty
from rerail.plan.tool_spec import ToolSpec


class Own:
    """A tool with the least that a tool needs."""

    spec = ToolSpec("own")

    async def call(self, args: dict[str, Any], ctx: Any) -> Any:
        """Nothing."""


def test_a_tool_that_lacks_members_gets_the_defaults() -> None:
    """M3: the call and the spec are its own, the rest is as the port says."""
    own = Own()
    tool: Any = with_defaults(own, TOOL)
    assert (tool.spec, tool.call) == (own.spec, own.call)
    assert (tool.is_async, tool.wants_context, tool.looks_outside, tool.stays) == (False, True, False, False)
    assert tool.answer_of is None
    with pytest.raises(AttributeError):
        _ = tool.nothing
    assert pickle.loads(pickle.dumps(tool)).spec.name == copy.copy(tool).spec.name == "own"


def test_an_object_that_has_everything_is_left_alone() -> None:
    """What it says itself counts."""

    class Store:
        caveats = ("it forgets",)

    store = Store()
    assert with_defaults(store, STORE) is store


@pytest.mark.parametrize(("name", "known"), [("ada", "ada"), (7, "mind"), (None, "mind")])
def test_a_mind_has_a_name(name: Any, known: str) -> None:
    """M4: a text, whatever it calls itself."""

    class Mind:
        answers = ("judge",)

    mind: Any = Mind()
    assert as_mind(mind).name == MIND["name"] and as_mind(mind).patience is None
    mind.name = name
    assert as_mind(mind).name == known and as_mind(mind).answers == ("judge",)


def test_tools_and_models_are_known_by_what_they_have() -> None:
    """M3: a spec and a call; something that completes prompts; roles, if it names some."""

    class Model:
        def complete(self) -> None: ...

    assert spec_of(Own()) is Own.spec
    assert spec_of(Own) is spec_of(len) is spec_of(Model()) is None
    assert is_model(Model()) and not is_model(Own())
    assert roles_of(Model(), ("plan",)) == ("plan",)
    model: Any = Model()
    model.roles = ["judge"]
    assert roles_of(model, ("plan",)) == ("judge",)


def test_a_spec_that_is_none_makes_no_tool() -> None:
    """M3: a call alone is not enough."""

    class Odd:
        spec = "odd"

        def call(self) -> None: ...

    assert spec_of(Odd()) is None


# -- Exceptions -------------------------------------------------------------------------------------------------------


class Raised(Exception):
    """An exception that says whatever it is given."""

    def __init__(self, **more: Any) -> None:
        super().__init__("x")
        vars(self).update(more)


class Answer:
    """A library's response."""

    def __init__(self, status: int, headers: Any) -> None:
        self.status_code, self.headers = status, headers


SILENT = Said(None, None, None, None, None, None, True, False, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("x"), SILENT),
        (
            Raised(code="C", category=Category.TOOL, status=404, exit_code=2, suggest={"a": 1}, ended=0, unanswered=1,
                   traceback_text="there"),
            Said("C", Category.TOOL, 404, 2, {"a": 1}, None, False, True, "there"),
        ),
        (Raised(code="", category="tool_error", status=True, exit_code="2", suggest=[1], traceback_text=7), SILENT),
    ],
)  # fmt: skip
def test_x4_an_exception_says_what_is_fit_and_nothing_else(error: BaseException, said: Said) -> None:
    """X4, X8: attributes of the right type count; others are as good as none."""
    assert said_by(error) == said


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (Raised(code="RATE_LIMITED", retry_after=3), 3.0),
        (Raised(code="COOLDOWN_ACTIVE", retry_after=0.5), 0.5),
        (Raised(status=429, retry_after=-1), None),
        (Raised(status=429, retry_after=True), None),
        (Raised(status=503, headers={"Retry-After": "7"}), 7.0),
        (Raised(response=Answer(429, {"Retry-After": " 9 "})), 9.0),
        (Raised(response=Answer(429, {"Retry-After": "soon"})), None),
        (Raised(response=Answer(429, {"retry-after": "1.5"})), 1.5),
        (Raised(response=Answer(429, {"Retry-After": "Thu, 01 Jan 1970 00:02:00 GMT"})), 20.0),
        (Raised(response=Answer(503, {"Retry-After": "Thu, 01 Jan 1970 00:00:09 GMT"})), 0.0),
        (
            Raised(status=429, headers={
                "Retry-After": "Fri, 06 Nov 2026 10:00:30 GMT", "Date": "Fri, 06 Nov 2026 10:00:00 GMT"
            }),
            30.0,
        ),
        (Raised(response=Answer(429, None)), None),
        (Raised(status=500, retry_after=3), None),
    ],
)  # fmt: skip
def test_x8_not_now_says_for_how_long(error: BaseException, seconds: float | None) -> None:
    """X8: its own word, or the header of its response, in seconds or as a date; only if it says "not now"."""
    assert said_by(error, now=100.0).retry_after == seconds


class Broken(Exception):
    """Fails whenever it is asked."""

    @property
    def certainty(self) -> Any:
        """No answer."""
        raise RuntimeError("no")


def test_x4_an_exception_that_cannot_be_asked_is_lost() -> None:
    """X4: what fails when it is asked has said nothing."""
    assert attribute(Broken(), "certainty") is None
    assert certainty_of(Broken()) is Certainty.LOST
    assert certainty_of(Raised(certainty=Certainty.NOT_DONE)) is Certainty.NOT_DONE
    assert certainty_of(Raised(certainty="not_done")) is Certainty.LOST


def chain(count: int, last: BaseException) -> BaseException:
    """Errors that say that nothing happened, each raised from the next, and one more."""
    error = last
    for _ in range(count):
        outer = Raised(certainty=Certainty.NOT_DONE)
        outer.__cause__ = error
        error = outer
    return error


def test_x4_a_chain_is_read_up_to_its_end() -> None:
    """X4: a cause that is lost makes all of it lost, and so does a chain too long to be read."""
    good = Raised(certainty=Certainty.NOT_DONE)
    assert not handled_lost(good) and not handled_lost(chain(2, good))
    assert handled_lost(chain(2, ValueError()))
    assert handled_lost(chain(MAX_CAUSES + 2, good))


def test_x4_never_sent_is_told_by_types_and_by_another_process() -> None:
    """X4: the type of the error or of what it wraps; a broken connection is not undone; another process knows."""
    refused, reset = ConnectionRefusedError(), ConnectionResetError()
    assert never_sent(refused) and never_sent(Raised(reason=refused)) and never_sent(Exception(refused))
    assert not never_sent(reset) and not never_sent(ValueError())
    after: BaseException = Exception(refused)
    after.__context__ = reset
    assert not never_sent(after)
    assert never_sent(Raised(never_sent=True)) and not never_sent(Raised(never_sent=False, reason=refused))
    assert not never_sent(chain(MAX_CAUSES + 2, refused)), "too long to be read"


def test_types_and_causes_are_those_it_names() -> None:
    """X3: its own types, or those that it had in another process; what it wraps, beside or not."""
    assert type_names(ValueError()) == ("ValueError", "Exception", "BaseException")
    assert type_names(Raised())[0].endswith("test_foreign.Raised")
    assert type_names(Raised(type_names=["a.B", "C"])) == ("a.B", "C")
    assert type_names(Raised(type_names=[])) == type_names(Raised())
    inner, beside = ValueError(), KeyError()
    outer: BaseException = Exception(inner)
    outer.__context__ = beside
    assert wrapped_in(outer, handled=True) == [beside, inner] and wrapped_in(outer, handled=False) == [inner]
