"""The scripted model server: what it plays, what it remembers, and how it says that a script does not fit (SPEC M1)."""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

import pytest

from rerail.testing import Answer, Asked, ModelServer

SCHEMA = {"type": "object", "properties": {"a": {}}}
NATIVE = {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}}
TOOL = {"tools": [{"type": "function", "function": {"name": "give", "parameters": SCHEMA}}]}


def ask(server: ModelServer, path: str = "/v1/chat/completions", role: str = "", **more: Any) -> tuple[int, Any]:
    """One request, with no library that could help."""
    body = {"model": "m", "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}], **more}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    headers = {"Authorization": "Bearer the-key", **({"Rerail-Role": role} if role else {})}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def said(document: Any) -> Any:
    return document["choices"][0]["message"]["content"]


def test_answers_come_in_the_way_they_were_asked_for() -> None:
    """M1: as content, or as the arguments of the tool that was offered."""
    with ModelServer([{"a": 1}, {"a": 2}, {"a": 3}]) as server:
        assert said(ask(server)[1]) == '{"a": 1}'
        assert said(ask(server, **NATIVE)[1]) == '{"a": 2}'
        message = ask(server, **TOOL)[1]["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "give", "arguments": '{"a": 3}'}
    assert [asked.wants for asked in server.asked] == ["text", "native", "tool"]
    assert [asked.schema for asked in server.asked] == [None, SCHEMA, SCHEMA]


def test_requests_are_remembered() -> None:
    """M1: for assertions."""
    with ModelServer([{}]) as server:
        ask(server, role="judge", temperature=0.5)
    (asked,) = server.asked
    assert (asked.role, asked.model, asked.system, asked.user) == ("judge", "m", "S", "U")
    assert asked.body["temperature"] == 0.5
    assert asked.headers["authorization"] == "Bearer the-key"


def test_bad_answers() -> None:
    """M1: each as real models give them."""
    script = [Answer.fenced({"a": 1}), Answer.malformed(), Answer.truncated({"a": 1}, 4), Answer.empty(), "words"]
    with ModelServer(script) as server:
        fenced, malformed, truncated, empty, words = [ask(server)[1] for _ in script]
    assert "```json\n" in said(fenced)
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(said(malformed))
    assert (said(truncated), truncated["choices"][0]["finish_reason"]) == ('{"a"', "length")
    assert (said(empty), said(words)) == ("", "words")


def test_error_statuses() -> None:
    """M1: with Retry-After, and with the key if a careless server is wanted."""
    with ModelServer([Answer.status(429, "slow", retry_after=7), Answer.echoing(401), Answer.status(500)]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", "{}")
        response = connection.getresponse()
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        connection.close()
        status, echoed = ask(server)
        assert (status, echoed["error"]["message"]) == (401, "not accepted: Bearer the-key")
        assert ask(server)[0] == 500


def test_slow_answers_and_broken_ones() -> None:
    """M1: the body breaks off, and a slow answer does not keep the server from closing."""
    with ModelServer([Answer.slow(0.2, {"a": 1}), Answer.cut({"a": 1}), Answer.slow(60)]) as server:
        began = time.monotonic()
        assert said(ask(server)[1]) == '{"a": 1}'
        assert time.monotonic() - began >= 0.2
        with pytest.raises(http.client.IncompleteRead):
            ask(server)
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", "{}")
        while len(server.asked) < 3:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    connection.close()


def test_a_refusal_and_a_page() -> None:
    """M1: a model that does not want to, and an address that is no model's."""
    with ModelServer([Answer.refused("No."), Answer.web_page("<p>")]) as server:
        assert ask(server)[1]["choices"][0]["message"] == {"role": "assistant", "content": None, "refusal": "No."}
        with pytest.raises(ValueError, match="Expecting"):
            ask(server)


def test_usage_can_be_set() -> None:
    """M1: for all answers, or for one."""
    with ModelServer([{}, Answer.of({}, usage=(5, 6))], usage=(3, 4)) as server:
        usages = [ask(server)[1]["usage"] for _ in range(2)]
    assert [(one["prompt_tokens"], one["completion_tokens"], one["total_tokens"]) for one in usages] == [
        (3, 4, 7), (5, 6, 11),
    ]  # fmt: skip


def test_each_role_has_its_script() -> None:
    """M1: "" is for roles that have none; a role whose own is used up takes from no other."""
    with ModelServer({"plan": ["p"], "": ["x", "y"]}) as server:
        assert said(ask(server, role="judge")[1]) == "x"
        assert said(ask(server, role="plan")[1]) == "p"
        assert ask(server, role="plan")[0] == 410


def test_the_role_may_be_found_by_a_function() -> None:
    """M1: for clients that do not send the header."""

    def by_words(asked: Asked) -> str:
        return "judge" if "S" in asked.system else ""

    with ModelServer({"judge": ["j"]}, role=by_words) as server:
        assert said(ask(server)[1]) == "j"
    assert server.asked[0].role == "judge"


def test_a_script_that_is_not_played_to_its_end_is_noticed() -> None:
    """M1: with what is left."""
    with ModelServer({"plan": [{}, {}], "": []}) as server:
        ask(server, role="plan")
    with pytest.raises(AssertionError, match=r"left over: \{'plan': 1\}"):
        server.assert_done()


def test_a_question_beyond_the_script_is_noticed() -> None:
    """M1: by whoever asks, and by assert_done."""
    with ModelServer([{}]) as server:
        ask(server)
        server.assert_done()
        status, document = ask(server, role="plan")
    assert status == 410
    assert document["error"]["message"] == "the script has no answer left for request 2 (role 'plan')"
    with pytest.raises(AssertionError, match=r"beyond the script.*request 2"):
        server.assert_done()


def test_a_connection_serves_many_questions() -> None:
    """M1: as real servers do, so that one that is left open is seen."""
    with ModelServer(["a", "b"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for expected in ("a", "b"):
            connection.request("POST", "/v1/chat/completions", "{}")
            assert said(json.loads(connection.getresponse().read())) == expected
        assert server.connections == 1
        connection.close()


def test_what_it_does_not_do_it_says() -> None:
    """M1: other addresses, streams."""
    with ModelServer([{}]) as server:
        assert ask(server, "/v1/responses")[0] == 404
        assert ask(server, stream=True)[0] == 405
        assert ask(server)[0] == 200
    assert len(server.asked) == 2


@pytest.mark.anyio
async def test_it_works_in_async_tests_as_well() -> None:
    """M1: and once closed, it is gone."""
    async with ModelServer([{}]) as server:
        assert ask(server)[0] == 200
    with pytest.raises(OSError, match=r"."):
        ask(server)
    server.stop()  # a second time changes nothing
