"""LangChain tools in plans: sync and async, with their schemas, their errors and their artifacts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, StructuredTool, ToolException, tool
from pydantic import BaseModel, Field

import rerail
from rerail.adapters.tools.functions import as_tool
from rerail.adapters.tools.langchain import LangChainTool
from rerail.adapters.tools.loading import load_tools
from rerail.plan.step import Effect


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def later(text: str) -> dict[str, str]:
    """Say a text, later."""
    return {"text": text}


@tool(response_format="content_and_artifact")
def picture(name: str, odd: bool = False) -> tuple[str, Any]:
    """Draw a picture."""
    return f"drew {name}", object() if odd else {"pixels": [1, 2]}


class Wanted(BaseModel):
    """What a search takes."""

    query: str = Field(description="what to look for")
    limit: int = Field(default=3, ge=1)


class Search(BaseTool):
    """A tool written as a class."""

    name: str = "search"
    description: str = "Look something up."
    args_schema: type[BaseModel] = Wanted

    def _run(self, query: str, limit: int = 3) -> list[str]:
        if query == "trouble":
            raise ToolException("the index is not there")
        return [query] * limit


class AsyncSearch(Search):
    """The same with a way of its own to be awaited."""

    name: str = "async_search"

    async def _arun(self, query: str, limit: int = 3) -> str:
        return threading.current_thread().name


def run(given: Any, args: dict[str, Any], **settings: Any) -> Any:
    """The one step of a plan that calls the tool."""
    name = getattr(given, "name", None) or given.spec.name
    few = {"reflection": {"max_step_retries": 0}, "retry": {"max_retry_rounds": 0}, **settings}
    return rerail.run({"steps": [{"id": "a", "tool": name, "args": args}]}, [given], settings=few).steps["a"]


def test_tools_are_taken_as_they_are() -> None:
    """M2: name, description, schema; what calling twice does is not known (E3)."""
    spec = as_tool(add).spec
    assert (spec.name, spec.description, spec.effect) == ("add", "Add two numbers.", Effect.ONCE)
    assert spec.schema.faults({"a": "x"})
    assert spec.schema.faults({})
    assert not spec.schema.faults({"a": 1})
    assert as_tool(Search()).spec.schema.faults({"query": "x", "limit": 0})


@pytest.mark.parametrize(
    ("given", "args", "output"),
    [
        (add, {"a": 1, "b": 2}, 3),
        (later, {"text": "hi"}, {"text": "hi"}),
        (Search(), {"query": "x", "limit": 2}, ["x", "x"]),
        (AsyncSearch(), {"query": "x"}, "MainThread"),
        (picture, {"name": "a cat"}, {"content": "drew a cat", "artifact": {"pixels": [1, 2]}}),
        (StructuredTool.from_function(lambda x: Wanted(query=x), name="m", description="d"), {"x": "q"},
         {"query": "q", "limit": 3}),
        (StructuredTool.from_function(lambda x: ToolMessage("said", tool_call_id="1"), name="m", description="d"),
         {"x": "q"}, "said"),
        (StructuredTool(name="j", description="d", func=lambda **a: a,
                        args_schema={"type": "object", "properties": {"x": {"type": "integer"}}}),
         {"x": 1}, {"x": 1}),
    ],
)  # fmt: skip
def test_answers_are_plain_data(given: Any, args: dict[str, Any], output: Any) -> None:
    """M2: sync in a thread, async on the loop; models written out; an artifact beside its content."""
    row = run(given, args)
    assert row.status == "succeeded", row.error
    assert row.output == output


def test_sync_tools_run_in_a_thread() -> None:
    """X1: one that blocks does not hold up the others."""
    names: list[str] = []

    @tool
    def where() -> None:
        """Tell the thread."""
        names.append(threading.current_thread().name)

    run(where, {})
    assert names != ["MainThread"]


def test_an_artifact_that_cannot_be_kept_is_left_out() -> None:
    """E3: the call is done, and is not made again for it; the log says so."""
    store = rerail.Engine("memory://", [picture])

    async def main() -> tuple[Any, list[Any]]:
        async with store as engine:
            result = await engine.run({"steps": [{"id": "a", "tool": "picture", "args": {"name": "x", "odd": True}}]})
            return result, await engine.events(result.run_id)

    result, events = asyncio.run(main())
    assert result.steps["a"].output == {"content": "drew x", "artifact": None}
    assert any("the artifact is a object" in str(event.to_dict()) for event in events)


@pytest.mark.parametrize("handler", [False, True, "all is well", lambda error: "all is well"])
def test_x4_a_tool_exception_is_a_failure(handler: Any) -> None:
    """X3, X4: also of a tool that was told to turn its errors into answers; what a `once` tool did is unknown."""
    row = run(Search(handle_tool_error=handler), {"query": "trouble"})
    assert row.status == "in_doubt"
    assert row.error["message"] == "the index is not there"
    assert row.error["type"].endswith("ToolException")


def test_an_error_message_is_a_failure() -> None:
    """X3: returned, and not raised."""
    given = StructuredTool.from_function(
        lambda: ToolMessage("no way", tool_call_id="1", status="error"), name="m", description="d"
    )
    assert run(given, {}).error["message"] == "no way"


@pytest.mark.parametrize("handler", [False, True])
def test_arguments_that_do_not_fit_are_the_arguments_fault(handler: bool) -> None:
    """H2: whoever finds out."""

    class Odd(BaseModel):
        x: int

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return {"type": "object"}

    given = StructuredTool(
        name="odd", description="d", func=lambda x: x, args_schema=Odd, handle_validation_error=handler
    )
    row = run(rerail.tool(given, schema=True), {"x": "many"})
    assert row.error["category"] == "parameter_error"


def test_what_is_injected_is_not_asked_for() -> None:
    """M2: the schema is the one that a model would see."""

    @tool
    def greet(name: str, secret: Annotated[str, InjectedToolArg] = "s") -> str:
        """Greet somebody."""
        return name + secret

    assert sorted(as_tool(greet).spec.schema.source["properties"]) == ["name"]  # type: ignore[index]
    assert run(greet, {"name": "ada"}).output == "adas"


def test_what_is_said_of_a_tool_counts() -> None:
    """E3, M2: in its metadata, or where it is wrapped, which counts more."""
    said = Search(metadata={"rerail": {"effect": "read", "timeout": 5, "provider": "index"}, "other": 1})
    spec = as_tool(said).spec
    assert (spec.effect, spec.timeout, spec.provider) == (Effect.READ, 5, "index")
    wrapped = rerail.tool(said, effect="repeatable", name="find", timeout=7)
    assert isinstance(wrapped, LangChainTool)
    assert (wrapped.spec.name, wrapped.spec.effect, wrapped.spec.timeout) == ("find", Effect.REPEATABLE, 7)
    assert run(wrapped, {"query": "x", "limit": 1}).output == ["x"]
    for wrong in ({"efect": "read"}, {"effect": "twice"}, "read"):
        with pytest.raises(ValueError, match=r"effect|mapping"):
            as_tool(Search(metadata={"rerail": wrong}))


def test_a_tools_definition_has_a_fingerprint() -> None:
    """E5: of what it does."""

    def other(a: int, b: int = 1) -> int:
        return a - b

    same = StructuredTool.from_function(other, name="add", description="Add two numbers.")
    assert as_tool(add).spec.fingerprint == as_tool(add).spec.fingerprint != as_tool(same).spec.fingerprint


def test_tools_are_found_in_files(tmp_path: Path) -> None:
    """SPEC 12: `--tools file.py` and `file.py:name`, one tool or a list."""
    (tmp_path / "lc.py").write_text(
        "from langchain_core.tools import tool\n"
        "@tool\ndef one(x: int) -> int:\n    'One.'\n    return x\n"
        "@tool\ndef two(x: int) -> int:\n    'Two.'\n    return x\n"
        "both = [one, two]\n"
    )
    file = str(tmp_path / "lc.py")
    assert [tool.spec.name for tool in load_tools(file)] == ["one", "two"]
    assert [tool.spec.name for tool in load_tools(file + ":two")] == ["two"]
    assert [tool.spec.name for tool in load_tools(file + ":both")] == ["one", "two"]
