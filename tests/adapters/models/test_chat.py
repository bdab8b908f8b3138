"""Language models through a real socket: answers, ways of asking, retries, fallbacks, prices, keys (SPEC M1, M4)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import sysconfig
import textwrap
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rerail.adapters.models.chat import ChatModel
from rerail.adapters.models.endpoints import Endpoint
from rerail.errors import SettingsError
from rerail.factory import make_model
from rerail.kernel.policy import Policy
from rerail.ports import ModelFailed, Prompt, Reply
from rerail.settings.loading import Settings
from rerail.testing import Answer, ModelServer

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-test-0123456789abcdef"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"steps": {"type": "array", "items": {"type": "object"}}},
    "required": ["steps"],
}
GOOD = {"steps": [{"id": "a"}]}
PLAN = Prompt("plan", "You plan.", "Make tea.", SCHEMA)
AT_ONCE = Policy(backoff_base=0)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key of the machine's, no proxy between the test and its server."""
    for name in [*os.environ]:
        if name.endswith(("_API_KEY", "_PROXY", "_proxy")) or name in ("OPENAI_BASE_URL", "OLLAMA_BASE_URL"):
            monkeypatch.delenv(name)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses: bound, so that nobody else gets it, and not listening."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def chat(server: ModelServer, name: str = "m", fallback: str | None = None, **options: Any) -> ChatModel:
    first = Endpoint(name, server.base_url, options.pop("key_env", None))
    others = [first.beside(fallback)] if fallback else []
    return ChatModel(first, *others, **{"policy": AT_ONCE, "timeout": 20, **options})


async def failure(model: Any, prompt: Prompt = PLAN) -> ModelFailed:
    with pytest.raises(ModelFailed) as failed:
        await model.complete(prompt)
    return failed.value


# -- Answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["native", "tool", "text"])
async def test_a_good_answer_is_a_mapping_whichever_way_it_was_asked_for(output: Any) -> None:
    """M1: structured output, with what it cost in tokens."""
    async with ModelServer([Answer.of(GOOD, usage=(31, 17))]) as server:
        reply = await chat(server, output=output).complete(PLAN)
    assert reply == Reply(GOOD, "m", 31, 17, 0.0)
    (asked,) = server.asked
    assert (asked.wants, asked.model, asked.user, asked.role) == (output, "m", "Make tea.", "plan")
    assert asked.system.startswith("You plan.")


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        (Answer.malformed(), "{'steps': [1, 2,], }"),
        (Answer.truncated(GOOD, 12), '{"steps": [{'),
        (Answer.fenced(GOOD), None),
        (Answer.empty(), ""),
        (Answer.of({"wrong": "shape"}), {"wrong": "shape"}),
        (Answer.of("[1, 2]"), "[1, 2]"),
        (Answer.of('{"a": ' * 5000), None),
        (Answer.of('{"a": ' * 5000 + "1" + "}" * 5000), None),
        (Answer.of('{"n": NaN}'), '{"n": NaN}'),
    ],
)
@pytest.mark.parametrize("output", ["native", "tool"])
async def test_whatever_else_comes_is_handed_on_as_it_is(answer: Answer, given: Any, output: Any) -> None:
    """M1: who asked checks; nothing is asked again behind their back."""
    async with ModelServer([answer]) as server:
        reply = await chat(server, output=output).complete(PLAN)
    assert reply.answer == (answer.content if given is None else given)
    assert len(server.asked) == 1


async def test_a_refusal_is_no_reply_and_is_paid_for() -> None:
    """M1: asking again in the same words would not help."""
    async with ModelServer([Answer.refused("Never.", usage=(1_000_000, 0))]) as server:
        failed = await failure(chat(server, prices={"m": (2.0, 4.0)}))
    assert "refused to answer: Never." in str(failed)
    assert (failed.transient, len(server.asked)) == (False, 1)
    assert failed.spent == Reply(None, "m", 1_000_000, 0, 2.0)


# -- Ways of asking -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["native", "tool"])
async def test_the_schema_is_sent_as_it_was_written(output: Any) -> None:
    """M1: an object that says nothing of its members stays open, or a plan's arguments could only be empty."""
    async with ModelServer([GOOD]) as server:
        await chat(server, output=output).complete(PLAN)
    sent = server.asked[0].schema
    # OpenAI wants to see "properties", and their being none forbids nothing.
    assert sent["properties"]["steps"]["items"].pop("properties", {}) == {}
    assert sent == SCHEMA


@pytest.mark.parametrize("output", ["auto", "text"])
async def test_a_server_known_by_its_address_alone_gets_the_schema_in_words_too(output: Any) -> None:
    """M1: local servers hold a model to a schema without showing it."""
    async with ModelServer([GOOD]) as server:
        await chat(server, output=output).complete(PLAN)
    assert '"required":["steps"]' in server.asked[0].system


async def test_words_that_cannot_be_sent_are_mended() -> None:
    """M4: a prompt holds what tools returned, and that may be anything."""
    async with ModelServer([GOOD]) as server:
        await chat(server).complete(Prompt("plan", "a\ud800b", "茶 \udfff\0", SCHEMA))
    assert server.asked[0].system.startswith("a?b")
    assert server.asked[0].user == "茶 ?\0"


@pytest.mark.parametrize("status", [400, 422, 501])
async def test_a_server_that_knows_no_schema_is_asked_with_a_tool_then_in_words(status: int) -> None:
    """M1: and from then on in the way it knows."""
    script = [Answer.status(status, "response_format?"), Answer.status(status, "tools?"), GOOD, GOOD]
    async with ModelServer(script) as server:
        model = chat(server, retries=0)
        assert (await model.complete(PLAN)).answer == GOOD
        assert (await model.complete(PLAN)).answer == GOOD
    server.assert_done()
    assert [asked.wants for asked in server.asked] == ["native", "tool", "text", "text"]


async def test_a_way_that_was_chosen_is_the_only_one() -> None:
    """M1: model.output other than auto."""
    async with ModelServer([Answer.status(400, "response_format?")]) as server:
        failed = await failure(chat(server, output="native"))
    assert "rejected with status 400 (response_format?)" in str(failed)
    assert not failed.transient


async def test_a_way_that_the_model_does_not_know_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: pydantic-ai refuses before anything is sent."""
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    failed = await failure(ChatModel(Endpoint("deepseek:deepseek-chat"), output="native"))
    assert "model.output" in str(failed)
    assert not failed.transient


async def test_a_model_that_thinks_first_is_sent_no_temperature(monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: it would be ignored with a warning, which is an error here."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with ModelServer([GOOD, GOOD]) as server:
        await chat(server, "openai:o3-mini", temperature=0.5).complete(PLAN)
        await chat(server, "openai:gpt-4o", temperature=0.5).complete(PLAN)
    assert [asked.body.get("temperature") for asked in server.asked] == [None, 0.5]


# -- Again --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        Answer.status(429, retry_after=0), Answer.status(408), Answer.status(500), Answer.status(502),
        Answer.status(503), Answer.cut(GOOD), Answer.cut(GOOD, keep=0),
    ],
)  # fmt: skip
async def test_passing_trouble_is_tried_again(trouble: Answer) -> None:
    """M1: a bounded number of times, and nobody below tries on top of that."""
    async with ModelServer([trouble, trouble, GOOD]) as server:
        assert (await chat(server, retries=2).complete(PLAN)).answer == GOOD
    server.assert_done()
    async with ModelServer([trouble, trouble]) as server:
        failed = await failure(chat(server, retries=1))
    server.assert_done()
    assert failed.transient
    assert failed.__cause__ is None and failed.__context__ is None


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "the key was refused with status 401: name the environment variable that holds it in model.key_env"),
        (403, "the key was refused with status 403"),
        (404, "there is no model 'm' at http://127.0.0.1:"),
        (402, "quota or credit is used up"),
        (413, "rejected with status 413"),
    ],
)
async def test_lasting_trouble_is_told_at_once(status: int, said: str) -> None:
    """M1: with what happened and what to do."""
    async with ModelServer([Answer.status(status, "the server's words")]) as server:
        failed = await failure(chat(server))
    server.assert_done()
    assert said in str(failed)
    assert "(the server's words)" in str(failed)
    assert not failed.transient


async def test_the_server_says_how_long_to_wait() -> None:
    """M1: Retry-After is obeyed."""
    async with ModelServer([Answer.status(429, retry_after=1), GOOD]) as server:
        began = time.monotonic()
        await chat(server).complete(PLAN)
    assert 1.0 <= time.monotonic() - began < 5


async def test_a_wait_beyond_the_time_is_not_begun() -> None:
    """M1: whoever asked hears of it, and may come back."""
    async with ModelServer([Answer.status(429, "slow down", retry_after=30)]) as server:
        began = time.monotonic()
        failed = await failure(chat(server, timeout=5))
    assert time.monotonic() - began < 4
    assert (failed.transient, failed.retry_after) == (True, 30.0)
    assert "asked to wait 30 s" in str(failed)


async def test_backoff_is_waited_where_the_server_says_nothing() -> None:
    """M1: as [retry] has it."""
    async with ModelServer([Answer.status(500), Answer.status(500), GOOD]) as server:
        began = time.monotonic()
        await chat(server, policy=Policy(backoff_base=0.2, jitter=False)).complete(PLAN)
    assert time.monotonic() - began >= 0.6


async def test_a_slow_model_is_given_up_after_the_timeout() -> None:
    """M1: all attempts together."""
    async with ModelServer([Answer.slow(30, GOOD)]) as server:
        began = time.monotonic()
        failed = await failure(chat(server, timeout=0.4))
        assert time.monotonic() - began < 10
    assert "within 0.4 s" in str(failed)
    assert failed.transient


async def test_a_server_that_is_not_there(closed_port: int) -> None:
    """M1: is it running?"""
    address = f"http://127.0.0.1:{closed_port}/v1"
    failed = await failure(ChatModel(Endpoint("m", address), policy=AT_ONCE))
    assert f"no connection to {address}: is the server running there?" in str(failed)
    assert failed.transient


@pytest.mark.parametrize(("path", "hint"), [("/v1", "right address?"), ("", "most end in /v1")])
async def test_an_address_that_is_no_models(path: str, hint: str) -> None:
    """M1: a page instead of an answer; /v1 is what people forget."""
    async with ModelServer([Answer.web_page()]) as server:
        endpoint = Endpoint("m", f"http://127.0.0.1:{server.port}{path}")
        failed = await failure(ChatModel(endpoint, policy=AT_ONCE))
    assert "did not answer as a model does" in str(failed)
    assert hint in str(failed)
    assert not failed.transient


async def test_who_asked_may_stop_waiting() -> None:
    """M1: cancelling is not taken for a timeout."""
    async with ModelServer([Answer.slow(30, GOOD)]) as server:
        asking = asyncio.create_task(chat(server).complete(PLAN))
        while not server.asked:  # noqa: ASYNC110 - it is on another thread
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert len(server.asked) == 1


# -- Fallback, roles, prices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Answer.status(404), Answer.status(429, retry_after=60), Answer.refused()])
async def test_the_fallback_answers_when_the_first_does_not(trouble: Answer) -> None:
    """M1: whatever was the matter with the first."""
    async with ModelServer([trouble, GOOD]) as server:
        reply = await chat(server, "big", fallback="small").complete(PLAN)
    assert (reply.answer, reply.model) == (GOOD, "small")
    assert [asked.model for asked in server.asked] == ["big", "small"]


async def test_the_fallback_has_its_own_time() -> None:
    """M1: a first model that hangs does not use it up."""
    async with ModelServer([Answer.slow(30), GOOD]) as server:
        reply = await chat(server, "big", fallback="small", timeout=1).complete(PLAN)
    assert reply.model == "small"


async def test_when_both_fail_both_are_told_of() -> None:
    """M1: transient if one of them is; the shortest wait counts."""
    script = [Answer.status(429, "first", retry_after=50), Answer.status(503, "second", retry_after=40)]
    async with ModelServer(script) as server:
        failed = await failure(chat(server, "big", fallback="small"))
    assert str(failed).startswith("big: too many requests, asked to wait 50 s (first); then small: the server failed")
    assert (failed.transient, failed.retry_after) == (True, 40.0)
    async with ModelServer([Answer.status(503, retry_after=60), Answer.status(404)]) as server:
        failed = await failure(chat(server, "big", fallback="small"))
    assert (failed.transient, failed.retry_after) == (True, 60.0)
    async with ModelServer([Answer.status(401), Answer.status(404)]) as server:
        failed = await failure(chat(server, "big", fallback="small"))
    assert (failed.transient, failed.retry_after) == (False, None)


async def test_every_attempt_that_was_billed_is_counted() -> None:
    """M1: tokens and cost per call, the refused attempt included, each at its model's price."""
    script = [Answer.refused(usage=(1_000_000, 500_000)), Answer.of(GOOD, usage=(100_000, 0))]
    prices = {"big": (3.0, 15.0), "small": (1.0, 2.0)}
    async with ModelServer(script) as server:
        reply = await chat(server, "big", fallback="small", prices=prices).complete(PLAN)
    assert (reply.input_tokens, reply.output_tokens) == (1_100_000, 500_000)
    assert reply.cost == pytest.approx(3.0 + 7.5 + 0.1)


@pytest.mark.parametrize(("name", "cost"), [("openai:gpt-4o", 2.0), ("gpt-4o", 3.0), ("other", 0.0)])
async def test_a_price_goes_by_the_whole_name_or_the_models_own(name: str, cost: float) -> None:
    """M1: prices of [model]; a model that has none costs nothing."""
    prices = {name: (cost, 0.0)} if cost else {}
    async with ModelServer([Answer.of(GOOD, usage=(1_000_000, 5))]) as server:
        reply = await chat(server, "openai:gpt-4o", prices=prices).complete(PLAN)
    assert reply.cost == pytest.approx(cost)


async def test_each_role_may_have_its_own_model() -> None:
    """M1: what a role leaves out is the common model's."""
    script = {"judge": [GOOD], "plan": [GOOD], "": [GOOD]}
    async with ModelServer(script) as server:
        settings = {
            "model": {
                "name": "common", "base_url": server.base_url, "temperature": 0.1,
                "judge": {"name": "strict", "temperature": 0.9}, "plan": {"name": "clever"},
            }
        }  # fmt: skip
        model = make_model(Settings.load(settings))
        assert model is not None
        for role in ("judge", "plan", "repair"):
            await model.complete(Prompt(role, "", "?", SCHEMA))
    server.assert_done()
    seen = [(asked.role, asked.model, asked.body["temperature"]) for asked in server.asked]
    assert seen == [("judge", "strict", 0.9), ("plan", "clever", 0.1), ("repair", "common", 0.1)]


async def test_a_role_that_has_no_model_says_how_to_give_it_one() -> None:
    """M1: only some roles may have one."""
    async with ModelServer() as server:
        model: Any = make_model(Settings.load({"model": {"judge": {"name": "m", "base_url": server.base_url}}}))
        assert model.roles == ("judge",)
        failed = await failure(model)
    assert "model.plan.name" in str(failed)
    assert not failed.transient


def test_without_a_name_there_is_no_model() -> None:
    """M1: all work is possible with no model at all."""
    assert make_model(Settings()) is None
    with pytest.raises(SettingsError, match=r"model\.name"):
        make_model(Settings.load({"model": {"base_url": "http://localhost:1/v1"}}))


@pytest.mark.parametrize(("name", "said"), [("gpt-5", "openai:gpt-5"), ("openai:", "provider:model")])
def test_a_name_that_means_nothing_is_refused_before_anything_is_asked(name: str, said: str) -> None:
    """SPEC 11: with what to write instead."""
    with pytest.raises(SettingsError, match=said):
        make_model(Settings.load({"model": {"name": name}}))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("opnai:gpt", "unknown provider 'opnai'; did you mean 'openai'?"),
        ("openai:gpt", "Set the `OPENAI_API_KEY` environment variable to use the OpenAI provider."),
        ("ollama:qwen3", "OLLAMA_BASE_URL"),
        ("mistral:mistral-small", "pydantic-ai-slim[mistral]"),
    ],
)
async def test_a_provider_that_cannot_be_used_says_what_is_missing(name: str, said: str) -> None:
    """M1: a key, an address, a package."""
    failed = await failure(ChatModel(Endpoint(name)))
    assert said in str(failed)
    assert not failed.transient


async def test_a_provider_that_has_one_address_is_given_no_other() -> None:
    """M1: rather than asking somebody else."""
    failed = await failure(ChatModel(Endpoint("deepseek:x", "http://127.0.0.1:1/v1")))
    assert "cannot be given model.base_url" in str(failed)


@pytest.mark.parametrize("provider", ["openai", "openai-chat", "ollama", "vllm"])
async def test_providers_at_an_address(provider: str) -> None:
    """M1: the prefix is not part of the model's name there."""
    async with ModelServer([GOOD]) as server:
        reply = await chat(server, f"{provider}:some-model").complete(PLAN)
    assert (server.asked[0].model, reply.model) == ("some-model", f"{provider}:some-model")


async def test_plain_openai_is_asked_by_chat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    """M1: the test server knows nothing else."""
    async with ModelServer([GOOD]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert (await ChatModel(Endpoint("openai:gpt-4o")).complete(PLAN)).answer == GOOD
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"


async def test_questions_at_once() -> None:
    """M1: each has its own connection."""
    async with ModelServer([GOOD] * 5) as server:
        model = chat(server)
        replies = await asyncio.gather(*(model.complete(PLAN) for _ in range(5)))
    assert [reply.answer for reply in replies] == [GOOD] * 5


@pytest.mark.parametrize("answer", [GOOD, Answer.status(401)])
async def test_no_connection_is_left_open(answer: Any) -> None:
    """M1: however the question ended; there is nobody to close a model."""
    async with ModelServer([answer]) as server:
        with contextlib.suppress(ModelFailed):
            await chat(server).complete(PLAN)
        await asyncio.sleep(0.2)  # the server notices in its own time
        assert (len(server.asked), server.connections) == (1, 0)


def test_one_model_in_several_event_loops() -> None:
    """M1: programs call asyncio.run more than once."""
    with ModelServer([GOOD, GOOD]) as server:
        model = chat(server)
        for _ in range(2):
            assert asyncio.run(model.complete(PLAN)).answer == GOOD


# -- Keys ---------------------------------------------------------------------------------------------------------


def shown(error: BaseException) -> str:
    """All that an error shows of itself, in any log."""
    return "\n".join([str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)])


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
async def test_a_key_that_the_server_sends_back_goes_no_further(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M1, M4: not into errors, their causes, representations or logs."""
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    async with ModelServer([Answer.echoing(status)] * 3) as server:
        model = chat(server, key_env="MY_KEY")
        failed = await failure(model)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "not accepted: Bearer ***" in str(failed)
    assert KEY not in shown(failed)
    assert failed.__cause__ is None and failed.__context__ is None
    assert KEY not in repr(model)
    assert KEY not in caplog.text
    if status == 401:
        assert "check MY_KEY" in str(failed)


async def test_a_key_within_an_answer_is_blotted_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: answers are stored; names, values and texts alike."""
    monkeypatch.setenv("MY_KEY", KEY)
    escaped = '{"a": "\\u0073' + KEY[1:] + '"}'
    async with ModelServer([{"a": [f"x{KEY}y"], KEY: 1}, f"the key is {KEY}!", escaped]) as server:
        model = chat(server, key_env="MY_KEY")
        answers = [(await model.complete(PLAN)).answer for _ in range(3)]
    assert answers == [{"a": ["x***y"], "***": 1}, "the key is ***!", {"a": "***"}]


async def test_a_credential_that_is_not_ours_is_not_shown_either() -> None:
    """M4: what follows Bearer never is."""
    async with ModelServer([Answer.status(500, "upstream said: bearer abcdefgh12345678, no")]) as server:
        failed = await failure(chat(server, retries=0))
    assert "bearer ***, no" in str(failed)


async def test_an_address_is_shown_without_its_password(closed_port: int) -> None:
    """M4: base_url may hold one."""
    endpoint = Endpoint("m", f"http://ada:hunter22@127.0.0.1:{closed_port}/v1?token=abc")
    failed = await failure(ChatModel(endpoint, policy=AT_ONCE))
    assert f"http://127.0.0.1:{closed_port}/v1:" in str(failed)
    assert "hunter22" not in shown(failed)
    assert "abc" not in shown(failed)


async def test_the_key_of_one_is_not_sent_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: a server known by its address gets the key that was named for it, or none."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with ModelServer([GOOD, GOOD]) as server:
        await chat(server, "qwen3:4b").complete(PLAN)
        await chat(server, "openai:gpt-4o").complete(PLAN)
    assert KEY not in server.asked[0].headers["authorization"]
    assert server.asked[1].headers["authorization"] == f"Bearer {KEY}"


async def test_a_role_at_another_address_does_not_take_the_key_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """M4: the common key is for the common address; a role may name its own."""
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv("JUDGES_KEY", "another-key-1234")
    async with ModelServer([GOOD] * 3) as server:
        there = {"base_url": server.base_url}
        model = {"name": "m", "key_env": "MY_KEY", **there, "plan": there, "judge": {**there, "key_env": "JUDGES_KEY"}}
        made = make_model(Settings.load({"model": model}))
        assert made is not None
        for role in ("plan", "judge", "repair"):
            await made.complete(Prompt(role, "", "?", SCHEMA))
    keys = [asked.headers["authorization"].removeprefix("Bearer ") for asked in server.asked]
    assert KEY not in keys[0]
    assert keys[1:] == ["another-key-1234", KEY]


async def test_a_key_that_is_not_there_is_named() -> None:
    """M1: by its variable."""
    async with ModelServer() as server:
        failed = await failure(chat(server, key_env="NO_SUCH_KEY"))
    assert "set the environment variable NO_SUCH_KEY" in str(failed)
    assert server.asked == []


# -- What is installed --------------------------------------------------------------------------------------------


def test_nothing_is_imported_before_a_question_is_asked() -> None:
    """M1: `import rerail` and `rerail --help` stay fast, and so does an engine that has a model."""
    program = """
        import contextlib, sys
        import rerail, rerail.testing
        from rerail.cli import main
        from rerail.factory import make_model
        sys.argv = ["rerail", "--help"]
        with contextlib.suppress(SystemExit):
            main()
        make_model(rerail.Settings.load({"model": {"name": "openai:x"}}))
        print("\\nLOADED", [name for name in ("pydantic_ai", "openai", "httpx2") if name in sys.modules])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"
    assert "Usage" in done.stdout


def test_without_the_extra_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    """M1: seen by a Python that really has the other packages and not these."""
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("pydantic_ai", "openai")) and entry.suffix != ".pth":
            (tmp_path / entry.name).symlink_to(entry)
    program = """
        import rerail
        from rerail.factory import make_model
        assert make_model(rerail.Settings()) is None
        try:
            make_model(rerail.Settings.load({"model": {"name": "openai:x"}}))
        except rerail.SettingsError as error:
            print(error)
    """
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(program)],
        capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip
    assert (
        done.stdout.strip() == "models need an extra that is not installed (in a clone of Rerail: pip install '.[llm]')"
    )
