"""Python functions as tools: schema, arguments, context, outputs, looks (SPEC M2, M3, E3, X3, V6, V8)."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import subprocess
import sys
import threading
import time
import timeit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional

import pytest
from pydantic import AfterValidator, BaseModel, Field

from rerail.adapters.executors.threads import Escaped
from rerail.adapters.tools.functions import FunctionTool, as_tool, is_tool, tool
from rerail.adapters.tools.signatures import read
from rerail.context import CallCancelled, Context
from rerail.errors import ToolError
from rerail.kernel.foreign import certainty_of
from rerail.kernel.outcome import Certainty
from rerail.plan.step import Check, Effect

if TYPE_CHECKING:
    import somewhere_else

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    count: int = 1


@dataclass
class Point:
    x: int
    y: int = 0


def schema_of(fn: Any) -> Any:
    return tool(fn).spec.schema.source


# --- Declaring


async def test_a_plain_decorator_makes_a_tool_that_is_still_the_function() -> None:
    """M2: the decorated function is called as it was written, and carries a spec."""

    @tool
    async def send(to: str, body: str = "hi") -> dict[str, str]:
        """Send a letter."""
        return {"to": to, "body": body}

    assert await send("a") == {"to": "a", "body": "hi"}
    assert await send.call({"to": "a", "body": "b"}) == {"to": "a", "body": "b"}
    assert send.__name__ == "send"
    assert send.spec.name == "send"
    assert send.spec.description == "Send a letter."


def test_a_python_tool_is_repeatable_unless_declared_otherwise() -> None:
    """E3: the default effect of a Python tool is repeatable."""

    def work() -> None: ...

    assert tool(work).spec.effect is Effect.REPEATABLE
    assert tool(effect="once")(work).spec.effect is Effect.ONCE


def test_everything_that_can_be_declared_is_in_the_spec() -> None:
    """M2, V6, X9: name, schema, effect, timeout, alternatives, provider, check and trust reach the spec."""

    @tool
    def other() -> None: ...

    @tool(
        name="x.y",
        schema={"type": "object"},
        effect="once",
        timeout=30,
        alternatives=["b", other],
        provider="p",
        check={"keys": ["id"]},
        trust_output=True,
        description="does it",
        verify=lambda output: True,
        probe=lambda args: 1,
    )
    def work(**anything: Any) -> None: ...

    spec = work.spec
    assert (spec.name, spec.effect, spec.timeout, spec.provider) == ("x.y", Effect.ONCE, 30.0, "p")
    assert spec.alternatives == ("b", "other")
    assert spec.check == Check(keys=("id",))
    assert (spec.trust_output, spec.description, spec.verifiable, spec.probes) == (True, "does it", True, True)
    assert spec.schema.source == {"type": "object"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "onec"}, "did you mean 'once'"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": "5"}, "above 0"),
        ({"schema": {"type": "strin"}}, "did you mean"),
        ({"alternatives": "b"}, "list of tool names"),
        ({"alternatives": [1]}, "list of tool names"),
        ({"check": {"schem": True}}, "did you mean 'schema'"),
        ({"check": {"schema": {"type": 7}}}, "the schema cannot be used"),
        ({"check": {"keys": 7}}, "check"),
        ({"check": 7}, "mapping"),
        ({"efect": "once"}, "did you mean 'effect'"),
        ({"name": " "}, "not empty"),
        ({"verify": 7}, "verify is a function"),
        ({"verify": lambda to: True}, "args, output, before, ctx"),
        ({"probe": lambda output: True}, "args, ctx"),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_to_write(options: dict[str, Any], said: str) -> None:
    """M2: a misspelled option is never a silent default."""

    def work() -> None: ...

    with pytest.raises(ValueError, match=said):
        tool(work, **options)


def test_parameters_that_no_plan_can_fill_are_refused() -> None:
    """M2: arguments come by name, so positional-only parameters, *args and unbound methods are refused."""

    def positional(a: int, /) -> None: ...
    def many(*args: int) -> None: ...

    class Box:
        def put(self, a: int) -> int:
            return a

    for fn, said in ((positional, "take out the `/`"), (many, "list parameter"), (Box.put, "instance.put")):
        with pytest.raises(ValueError, match=said):
            tool(fn)
    with pytest.raises(ValueError, match="name="):
        tool(lambda: 1)
    with pytest.raises(ValueError, match="from a function"):
        tool(7)  # type: ignore[arg-type]
    assert tool(Box().put).spec.schema.source["required"] == ["a"]


def test_a_type_without_a_json_form_is_refused_by_the_name_of_its_parameter() -> None:
    """M2: the message says which parameter and what to do."""

    def work(fine: int, lock: threading.Thread) -> None: ...

    with pytest.raises(ValueError, match=r"parameter 'lock'.*schema="):
        tool(work)
    assert tool(work, schema={"type": "object"}).spec.schema.source == {"type": "object"}


def test_the_fingerprint_follows_the_definition_and_nothing_else() -> None:
    """E5: another body, schema or effect is another tool; another timeout is not."""
    scope: dict[str, Any] = {}

    def made(body: str, options: str = "") -> str:
        # No source file: the bytecode speaks.
        exec(f"def work(a: int):\n    return {body}", scope)
        return eval(f"tool(work{options})", {**scope, "tool": tool}).spec.fingerprint

    assert made("a + 1") == made("a + 1", ", timeout=3")
    assert len({made("a + 1"), made("a + 2"), made("a + 1", ", effect='once'"), made("a + 1", ", schema=True")}) == 4

    def written(a: int) -> int:
        return a

    first = tool(written).spec.fingerprint

    @tool(timeout=7)
    def written(a: int) -> int:
        return a

    assert written.spec.fingerprint == first


def test_importing_the_module_does_not_import_pydantic() -> None:
    """M2: users without tools of their own do not wait for pydantic."""
    code = "import sys, rerail.adapters.tools.functions; assert 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- Schemas


def test_type_hints_become_a_schema() -> None:
    """M2: types, defaults, optional values, literals, enums and limits; unknown arguments are refused by name."""

    def work(
        text: str,
        anything,
        number: float = 1.5,
        maybe: Optional[str] = None,  # noqa: UP045
        none: str = None,  # type: ignore[assignment]  # noqa: RUF013
        mode: Literal["fast", "slow"] = "fast",
        colour: Colour = Colour.RED,
        limit: Annotated[int, Field(ge=1, le=9, description="how many")] = 3,
        tags: list[str] = [],  # noqa: B006
        _hidden: int = 0,
        schema: int = 0,
    ) -> None: ...

    rules = tool(work).spec.schema
    source = rules.source
    assert source["required"] == ["text", "anything"]
    assert source["additionalProperties"] is False
    assert source["properties"]["limit"]["description"] == "how many"
    assert source["properties"]["colour"]["default"] == "red"
    assert source["properties"]["number"] == {"type": "number", "default": 1.5}
    good = {
        "text": "a",
        "anything": [1, None],
        "maybe": None,
        "none": None,
        "colour": "blue",
        "_hidden": 1,
        "schema": 2,
    }
    assert rules.faults(good) == []
    bad = {"text": 1, "anything": 1, "mode": "slwo", "colour": "green", "limit": 10, "tags": [1], "txet": 1}
    words = " | ".join(map(str, rules.faults(bad)))
    for said in (
        "text: expected string",
        'did you mean "slow"',
        "colour",
        "at most 9",
        "tags[0]",
        'did you mean "text"',
    ):
        assert said in words, said


def test_keyword_arguments_accept_anything() -> None:
    """M2: **kwargs takes anything."""

    def work(a: int, **more: Any) -> dict[str, Any]:
        return {"a": a, **more}

    made = tool(work)
    assert made.spec.schema.faults({"a": 1, "b": [2]}) == []
    assert asyncio.run(made.call({"a": 1, "fn": 2, "args": 3})) == {"a": 1, "fn": 2, "args": 3}


def test_parameters_may_have_any_name() -> None:
    """M2: names that mean something to the machinery are the user's all the same."""

    @tool
    def work(fn: int, args: int, kwargs: int, name: int, job: int, model_config: int, json: int) -> list[int]:
        return [fn, args, kwargs, name, job, model_config, json]

    names = ["fn", "args", "kwargs", "name", "job", "model_config", "json"]
    assert asyncio.run(work.call({name: at for at, name in enumerate(names)})) == list(range(7))


def test_docstrings_describe_parameters_in_three_styles() -> None:
    """M2: Google, NumPy and reST."""
    google = """Do it.

    More about it.

    Args:
        a (int, optional): the first,
            in two lines
        **b: the second: with a colon

    Returns:
        c: not a parameter
    """
    numpy = """Do it.

    Parameters
    ----------
    a : int
        the first,
        in two lines
    b, c : str, optional
        both

    Returns
    -------
    d : int
        not a parameter
    """
    rest = """Do it.

    :param int a: the first,
        in two lines
    :param b: the second
    :returns: not a parameter
    """
    assert read(google).parameters == {"a": "the first, in two lines", "b": "the second: with a colon"}
    assert read(numpy).parameters == {"a": "the first, in two lines", "b": "both", "c": "both"}
    assert read(rest).parameters == {"a": "the first, in two lines", "b": "the second"}
    assert {read(text).summary for text in (google, numpy, rest)} == {"Do it."}
    assert read(None).parameters == read("").parameters == read("Args:").parameters == {}

    def work(a: int, b: Annotated[int, Field(description="own words")]) -> None: ...

    work.__doc__ = google
    properties = schema_of(work)["properties"]
    assert properties["a"]["description"] == "the first, in two lines"
    assert properties["b"]["description"] == "own words"


async def test_annotations_may_be_local_later_or_for_type_checkers_only() -> None:
    """M2: text annotations find local classes; a class defined later is found when the spec is first needed."""

    class Local(BaseModel):
        a: int

    @tool
    def near(one: Local) -> int:
        return one.a

    assert await near.call({"one": {"a": 3}}) == 3

    @tool
    def returns(a: int) -> somewhere_else.Thing:
        return a

    assert await returns.call({"a": 1}) == 1

    scope: dict[str, Any] = {"tool": tool, "Base": BaseModel}
    exec(  # as a module would: the class stands below
        "from __future__ import annotations\n@tool\ndef work(one: Later) -> int:\n    return one.a\n", scope
    )
    with pytest.raises(ValueError, match="Later"):
        _ = scope["work"].spec
    exec("class Later(Base):\n    a: int\n", scope)
    assert await scope["work"].call({"one": {"a": 4}}) == 4
    assert scope["work"].spec.schema.faults({"one": {}})


# --- Arguments


async def test_arguments_are_converted_to_the_types_that_are_asked_for() -> None:
    """M2: models, dataclasses, enums, dates, paths, decimals, sets and aliases arrive as themselves."""

    @tool
    def work(
        item: Item,
        points: list[Point],
        when: datetime,
        path: Path,
        colour: Colour,
        price: Decimal,
        tags: set[str],
        sender: Annotated[str, Field(alias="from")],
        left: int = 7,
    ) -> list[Any]:
        return ["as they came", item, points, when, path, colour, price, tags, sender, left]

    args = {
        "item": {"name": "a"},
        "points": [{"x": 1}],
        "when": "2026-01-02T03:04:05Z",
        "path": "/tmp/x",
        "colour": "blue",
        "price": "1.50",
        "tags": ["b", "b"],
        "from": "me",
    }
    assert work.spec.schema.faults({**args, "tags": ["b"]}) == []
    assert await work.call(args) == [
        "as they came",
        Item(name="a"),
        [Point(1)],
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        Path("/tmp/x"),
        Colour.BLUE,
        Decimal("1.50"),
        {"b"},
        "me",
        7,
    ]
    with pytest.raises(ToolError, match=r"item\.count") as caught:
        await work.call({**args, "item": {"name": "a", "count": "many"}})
    assert caught.value.code == "ARGS_INVALID"


def test_plain_json_types_go_straight_through() -> None:
    """M2: where nothing needs converting, the function gets the very objects."""
    Name = NewType("Name", str)

    def plain(
        a: str,
        b: dict[str, list[int]],
        c: int | None,
        d: Literal["x"],
        e: Sequence[Any],
        f: Name,
        g: Annotated[int, Field(ge=1), "words"],
        h: object = None,
    ) -> None: ...

    def validated(a: Annotated[int, AfterValidator(lambda value: value + 1)]) -> int:
        return a

    assert tool(plain).direct
    assert not tool(validated).direct
    assert asyncio.run(tool(validated).call({"a": 1})) == 2


async def test_a_schema_of_ones_own_still_lets_models_arrive_as_models() -> None:
    """M2: a given schema is used as it is, and says nothing about the types inside."""

    @tool(schema={"type": "object", "properties": {"item": {}}})
    def work(item: Item) -> str:
        return item.name

    assert await work.call({"item": {"name": "a"}}) == "a"


async def test_partials_and_callable_objects_are_tools_too() -> None:
    """M2: whatever can be called with names."""

    class Adder:
        async def __call__(self, a: int, b: int = 1) -> int:
            return a + b

    def add(a: int, b: int) -> int:
        return a + b

    assert await tool(Adder(), name="adder").call({"a": 1}) == 2
    plus_two = tool(functools.partial(add, b=2))
    assert plus_two.spec.name == "add"
    assert await plus_two.call({"a": 1}) == 3


# --- Context


async def test_a_context_is_given_to_those_who_ask() -> None:
    """M3: by annotation under any name, or as a bare `ctx`; it is not in the schema."""

    @tool
    async def annotated(a: int, call: Context) -> Any:
        return [a, call]

    @tool
    def optional(a: int, ctx: Context | None = None) -> Any:
        return [a, ctx]

    @tool
    def bare(ctx, a: int):
        return [a, ctx]

    @tool
    def own(ctx: str) -> str:
        return ctx

    ctx = Context("run", "step")
    for one in (annotated, optional, bare):
        assert one.wants_context
        assert not one.direct
        assert list(one.spec.schema.source["properties"]) == ["a"]
        assert await one.call({"a": 1}, ctx) == [1, ctx]
        assert isinstance((await one.call({"a": 1}))[1], Context)  # without an engine: a fresh one
    assert not own.wants_context
    assert await own.call({"ctx": "text"}, ctx) == "text"


def test_what_a_context_offers(tmp_path: Path) -> None:
    """M3: run, step, attempt, key, workspace, log, progress, cancel signal, and what was spent."""
    heard: list[tuple[str, Any]] = []
    ctx = Context("r", "s", 2, "k", tmp_path / "work" / "r", lambda kind, said: heard.append((kind, dict(said))))
    assert (ctx.run, ctx.step, ctx.attempt, ctx.key) == ("r", "s", 2, "k")
    assert not (tmp_path / "work").exists()  # made on first use
    assert ctx.workspace.is_dir()
    assert ctx.workspace is ctx.workspace
    ctx.log("a line")
    ctx.progress(0.5, "half")
    ctx.progress(7)
    ctx.progress(message="still")
    assert heard == [
        ("log", {"message": "a line"}),
        ("progress", {"fraction": 0.5, "message": "half"}),
        ("progress", {"fraction": 1.0, "message": ""}),
        ("progress", {"fraction": None, "message": "still"}),
    ]
    threads = [threading.Thread(target=lambda: [ctx.usage(1, 0.5) for _ in range(500)]) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (ctx.tokens, ctx.cost) == (2000, 1000.0)
    Context().log("nobody listens")
    assert Context().workspace.is_dir()


def test_x4_a_cancelled_context_says_so_in_any_thread() -> None:
    """M3, X4: `cancelled` can be asked, waited for, and raised on; what the call did is unknown."""
    ctx = Context(step="s")
    ctx.check_cancelled()
    assert not ctx.cancelled.wait(0.01)
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(ctx.cancelled.wait(10)))
    waiter.start()
    ctx.cancelled.set()
    waiter.join()
    assert woken == [True]
    assert ctx.cancelled.is_set()
    assert ctx.cancelled.wait()
    with pytest.raises(CallCancelled) as caught:
        ctx.check_cancelled()
    assert certainty_of(caught.value) is Certainty.LOST


def test_building_a_context_is_cheap() -> None:
    """M3: it is built for every call that asks for one."""
    best = min(timeit.repeat(lambda: Context("r", "s", 1, "k", "w", print), number=20_000, repeat=5)) / 20_000
    assert best < 10e-6  # about 1 µs; the margin is for busy machines


# --- Calls


async def test_async_functions_run_on_the_loop_and_sync_ones_in_threads() -> None:
    """X1, M2: a blocking tool does not block the others; contextvars reach both."""
    var = contextvars.ContextVar("var", default="")
    var.set("seen")

    @tool
    async def awaited() -> list[Any]:
        return [threading.current_thread() is threading.main_thread(), var.get()]

    @tool
    def blocking() -> list[Any]:
        time.sleep(0.2)
        return [threading.current_thread() is threading.main_thread(), var.get()]

    assert (awaited.is_async, blocking.is_async) == (True, False)
    assert await awaited.call({}) == [True, "seen"]
    start = time.perf_counter()
    assert await asyncio.gather(*(blocking.call({}) for _ in range(5))) == [[False, "seen"]] * 5
    assert time.perf_counter() - start < 0.9


@pytest.mark.filterwarnings("error")
async def test_a_promise_of_an_output_is_a_failure() -> None:
    """X3: a generator, an async generator or a coroutine that nobody runs is no result."""

    @tool
    def generator() -> Iterator[int]:
        yield 1

    @tool
    async def async_generator() -> Any:
        async def numbers() -> Any:
            yield 1

        return numbers()

    @tool
    def coroutine() -> Any:
        return asyncio.sleep(0)

    @tool
    async def future() -> Any:
        return asyncio.get_running_loop().create_future()

    for one, said in (
        (generator, "a generator"),
        (async_generator, "an async generator"),
        (coroutine, "async def"),
        (future, "a future"),
    ):
        with pytest.raises(ToolError, match=said) as caught:
            await one.call({})
        assert caught.value.code == "OUTPUT_NOT_JSON"


async def test_other_outputs_come_back_as_they_are() -> None:
    """X3: nothing, 50 MB, models as plain data; whether the rest is JSON is for the engine to say."""
    big = "x" * 50_000_000

    @tool
    def give(what: str) -> Any:
        return {"nothing": None, "big": big, "model": Item(name="a"), "models": [Item(name="b")], "set": {1}}[what]

    assert await give.call({"what": "nothing"}) is None
    assert await give.call({"what": "big"}) is big
    assert await give.call({"what": "model"}) == {"name": "a", "count": 1}
    assert await give.call({"what": "models"}) == [{"name": "b", "count": 1}]
    assert await give.call({"what": "set"}) == {1}


async def test_sys_exit_in_a_tool_is_its_own_failure() -> None:
    """X3: the program goes on; the failure keeps the name of what was raised."""

    @tool
    def blocking() -> None:
        sys.exit(3)

    @tool
    async def awaited() -> None:
        sys.exit(3)

    for one in (blocking, awaited):
        with pytest.raises(Escaped, match=r"sys\.exit\(3\)") as caught:
            await one.call({})
        assert caught.value.type_names[0] == "SystemExit"
        assert isinstance(caught.value.__cause__, SystemExit)


async def test_what_a_tool_raises_comes_back_unchanged() -> None:
    """X3, H2, H6: typed errors keep code, category and hints, from threads too."""

    @tool
    def work() -> None:
        raise ToolError("no such source", code="NO_SOURCE", suggest={"id": "ds_001"})

    with pytest.raises(ToolError, match="no such source") as caught:
        await work.call({})
    assert (caught.value.code, caught.value.suggest) == ("NO_SOURCE", {"id": "ds_001"})


async def test_a_cancelled_blocking_tool_is_told_and_abandoned() -> None:
    """X4, M3: a thread cannot be stopped, but its context says that it should."""
    told = threading.Event()

    @tool
    def work(ctx: Context) -> None:
        if ctx.cancelled.wait(10):
            told.set()

    ctx = Context()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(work.call({}, ctx), 0.1)
    assert ctx.cancelled.is_set()
    assert await asyncio.to_thread(told.wait, 5)


# --- Looks


async def test_verify_and_probe_take_what_they_name() -> None:
    """V8: any of args, output, before, ctx, by name; sync or async, plain function or tool."""
    ctx = Context()

    @tool
    async def everything(**given: Any) -> Any:
        return given

    async def looked(args: dict[str, Any], ctx: Context) -> Any:
        return [args, ctx]

    @tool(verify=everything, probe=looked)
    def first() -> None: ...

    @tool(verify=lambda before, output=None: [before, output])
    def second() -> None: ...

    wanted = {"args": {"a": 1}, "output": 2, "before": 3, "ctx": ctx}
    assert await first.verify({"a": 1}, 2, 3, ctx) == wanted
    assert await first.probe({"a": 1}, ctx) == [{"a": 1}, ctx]
    assert await second.verify({"a": 1}, 2, 3, ctx) == [3, 2]
    assert (second.spec.verifiable, second.spec.probes) == (True, False)
    with pytest.raises(LookupError):
        await second.probe({}, ctx)

    async def absent() -> bool:
        return False

    def generated() -> Iterator[bool]:
        yield False

    # Neither may be taken for an effect that is there.
    hidden = tool(second.fn, verify=lambda: absent())  # noqa: PLW0108  # so that it does not look async
    assert await hidden.verify({}, None, None, ctx) is False
    with pytest.raises(TypeError, match="not yield"):
        await tool(second.fn, verify=generated).verify({}, None, None, ctx)
    with pytest.raises(LookupError):
        await tool(second.fn).verify({}, None, None, ctx)


# --- Helpers


def test_as_tool_takes_functions_and_tools() -> None:
    """M2: what an engine's `tools=` accepts."""

    def work(a: int) -> int:
        return a

    made = as_tool(work)
    assert isinstance(made, FunctionTool)
    assert as_tool(made) is made
    assert is_tool(made)
    assert not is_tool(work)
    assert not is_tool(FunctionTool)
    for wrong in (7, "work", Item):
        with pytest.raises(ValueError, match="is not a tool"):
            as_tool(wrong)
