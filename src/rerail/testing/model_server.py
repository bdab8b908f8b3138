"""A language model's server for tests: OpenAI's protocol over a real socket, answering from a script.

    with ModelServer([{"steps": []}, Answer.status(429, retry_after=1), Answer.fenced({"steps": []})]) as server:
        settings = rerail.Settings.load({"model": {"name": "any", "base_url": server.base_url}})
        ...
    server.assert_done()

`async with` works as well. The server has a thread and an event loop of its own, so that it answers whatever the test
is waiting for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any, Final, Literal

ROLE_HEADER: Final = "rerail-role"
_LONGEST_HEAD: Final = 65536


# -- What is asked ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that the server received."""

    headers: Mapping[str, str]  # by names in lower case
    body: Mapping[str, Any]
    role: str = ""

    @property
    def model(self) -> str:
        """Return the requested model."""
        return str(self.body.get("model", ""))

    @property
    def system(self) -> str:
        """Return the instructions."""
        return self._said_by("system", "developer")

    @property
    def user(self) -> str:
        """Return the question."""
        return self._said_by("user")

    @property
    def wants(self) -> Literal["native", "tool", "text"]:
        """Return the way of asking for JSON: by a schema, by a tool, or in words."""
        if "response_format" in self.body:
            return "native"
        return "tool" if self.body.get("tools") else "text"

    @property
    def schema(self) -> Any:
        """Return the question's JSON Schema; None if it is only described in words."""
        if self.wants == "native":
            return self.body["response_format"].get("json_schema", {}).get("schema")
        return self.body["tools"][0]["function"]["parameters"] if self.wants == "tool" else None

    def _said_by(self, *roles: str) -> str:
        messages = self.body.get("messages", ())
        return "\n".join(str(one.get("content", "")) for one in messages if one.get("role") in roles)


# -- What is answered ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a script; made by the functions below. Plain mappings and texts in a script are converted."""

    content: Any = None  # a mapping is sent in the requested way, a text unchanged
    code: int = 200
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    finish: str = "stop"
    usage: tuple[int, int] | None = None  # tokens in and out; the server's own numbers if None
    seconds: float = 0.0
    keep: int | None = None  # so many bytes of the body are sent, then the connection is cut
    chars: int | None = None  # the model stops after so many characters
    echo: bool = False
    refusal: str = ""
    page: str | None = None

    @classmethod
    def of(cls, content: Any, *, usage: tuple[int, int] | None = None, finish: str = "stop") -> Answer:
        """Return a good answer: a mapping as JSON in the requested way, a text unchanged."""
        return cls(content, usage=usage, finish=finish)

    @classmethod
    def fenced(cls, content: Mapping[str, Any]) -> Answer:
        """Return JSON between ```json and ```, as chatty models write it."""
        return cls(f"Here you are:\n```json\n{json.dumps(content, indent=2)}\n```\n")

    @classmethod
    def malformed(cls) -> Answer:
        """Return malformed JSON."""
        return cls("{'steps': [1, 2,], }")

    @classmethod
    def truncated(cls, content: Mapping[str, Any], chars: int = 10) -> Answer:
        """Return truncated JSON: the model reached its token limit."""
        return cls(content, finish="length", chars=chars)

    @classmethod
    def empty(cls) -> Answer:
        """Return an empty answer."""
        return cls("")

    @classmethod
    def refused(cls, words: str = "I cannot help with that.", usage: tuple[int, int] | None = None) -> Answer:
        """Return a refusal of the model."""
        return cls(None, refusal=words, usage=usage)

    @classmethod
    def web_page(cls, html: str = "<html>Please log in.</html>") -> Answer:
        """Return an HTML page, as from a wrong address."""
        return cls(page=html)

    @classmethod
    def status(cls, code: int, message: str = "", *, retry_after: float | None = None) -> Answer:
        """Return an error status: 401, 404, 429, 500, …"""
        headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
        return cls(code=code, message=message or HTTPStatus(code).phrase, headers=headers)

    @classmethod
    def echoing(cls, code: int = 401) -> Answer:
        """Return an error that repeats the Authorization header, as careless servers do."""
        return cls(code=code, message="not accepted: {authorization}", echo=True)

    @classmethod
    def slow(cls, seconds: float, content: Any = None) -> Answer:
        """Return a delayed answer."""
        return replace(_as_answer(content), seconds=seconds)

    @classmethod
    def cut(cls, content: Any = None, keep: int = 20) -> Answer:
        """Return a connection cut in the middle of the body."""
        return replace(_as_answer(content), keep=keep)


def _as_answer(given: Any) -> Answer:
    return given if isinstance(given, Answer) else Answer({} if given is None else given)


# -- The server ---------------------------------------------------------------------------------------------------


class ModelServer:
    """Answers chat completions from a script, one entry each, and records the requests.

    The script is a sequence, or one sequence per role; the entry "" is for all other roles. A role is the header
    `Rerail-Role`, or the result of ``role`` for the request. An entry is a mapping or a text (a good answer), or an
    `Answer`.
    """

    def __init__(
        self,
        script: Sequence[Any] | Mapping[str, Sequence[Any]] = (),
        *,
        usage: tuple[int, int] = (100, 20),
        role: Callable[[Asked], str] | None = None,
    ) -> None:
        parts = script if isinstance(script, Mapping) else {"": script}
        self._script = {name: [_as_answer(entry) for entry in entries] for name, entries in parts.items()}
        self._usage = usage
        self._role = role or (lambda asked: asked.headers.get(ROLE_HEADER, ""))
        self._unexpected: list[str] = []
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.asked: list[Asked] = []
        self.connections = 0  # open now
        self.port = 0

    @property
    def base_url(self) -> str:
        """Return the address for `model.base_url`."""
        return f"http://127.0.0.1:{self.port}/v1"

    def assert_done(self) -> None:
        """Raise AssertionError for an unused entry, or for a request beyond the script."""
        left = {role or "any role": len(entries) for role, entries in self._script.items() if entries}
        assert not left, f"the script was not played to its end; left over: {left}"
        assert not self._unexpected, f"asked beyond the script: {'; '.join(self._unexpected)}"

    def start(self) -> None:
        """Begin to listen, on a free port of the loopback."""
        listening = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(listening)), name="model-server", daemon=True
        )
        self._thread.start()
        listening.wait()

    def stop(self) -> None:
        """Close everything, answers on their way included."""
        if self._thread is None or self._loop is None or self._stop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._thread = self._loop = self._stop = None

    def __enter__(self) -> ModelServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> ModelServer:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    # -- In the thread --------------------------------------------------------------------------------------------

    async def _serve(self, listening: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        talks: set[asyncio.Task[None]] = set()

        # No coroutine, so that the tasks are ours: asyncio would complain about cancelled ones.
        def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.add(asyncio.create_task(self._talk(reader, writer)))

        server = await asyncio.start_server(talk, "127.0.0.1", 0, limit=_LONGEST_HEAD)
        self.port = server.sockets[0].getsockname()[1]
        listening.set()
        await self._stop.wait()
        server.close()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: requests one after the other, until it is closed."""
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is gone
        finally:
            self.connections -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return True if the connection still stands after it."""
        target, headers, body = await _request(reader)
        keep: int | None = None
        if target.endswith("/chat/completions"):
            asked = Asked(headers, body)
            asked = replace(asked, role=self._role(asked))
            self.asked.append(asked)
            answer = self._next(asked)
            await asyncio.sleep(answer.seconds)
            data, keep = self._data(answer, asked), answer.keep
        else:
            data = _response(404, _error(404, f"there is no {target} here"))
        writer.write(data if keep is None else data[: data.index(b"\r\n\r\n") + 4 + keep])
        await writer.drain()
        return keep is None

    def _next(self, asked: Asked) -> Answer:
        if asked.body.get("stream"):
            return Answer.status(405, "this server does not stream")
        entries = self._script.get(asked.role) or (self._script.get("", []) if asked.role not in self._script else [])
        if entries:
            return entries.pop(0)
        text = f"the script has no answer left for request {len(self.asked)} (role {asked.role or 'unknown'!r})"
        self._unexpected.append(text)
        return Answer.status(410, text)  # a status that clients do not retry

    def _data(self, answer: Answer, asked: Asked) -> bytes:
        if answer.page is not None:
            return _whole(200, "text/html", answer.page.encode(), {})
        return _response(answer.code, self._body(answer, asked), answer.headers)

    def _body(self, answer: Answer, asked: Asked) -> dict[str, Any]:
        if answer.code >= 400:
            key = asked.headers.get("authorization", "")
            return _error(answer.code, answer.message.format(authorization=key) if answer.echo else answer.message)
        into, out = answer.usage or self._usage
        return {
            "id": f"chatcmpl-{len(self.asked)}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": asked.model,
            "choices": [{"index": 0, "message": _message(answer, asked), "finish_reason": answer.finish}],
            "usage": {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out},
        }


# -- The protocol -------------------------------------------------------------------------------------------------


def _message(answer: Answer, asked: Asked) -> dict[str, Any]:
    if answer.refusal:
        return {"role": "assistant", "content": None, "refusal": answer.refusal}
    text = answer.content if isinstance(answer.content, str) else json.dumps(answer.content)
    text = text[: answer.chars]
    if asked.wants != "tool" or isinstance(answer.content, str):
        return {"role": "assistant", "content": text}
    function = {"name": asked.body["tools"][0]["function"]["name"], "arguments": text}
    return {"role": "assistant", "content": None, "tool_calls": [_call(function)]}


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": function}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "error", "param": None, "code": str(code)}}


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return head[0].split(" ")[1].partition("?")[0], headers, json.loads(body or b"{}")


def _response(code: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    return _whole(code, "application/json", json.dumps(body).encode(), headers or {})


def _whole(code: int, kind: str, data: bytes, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {code} {HTTPStatus(code).phrase}", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [*(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + data
