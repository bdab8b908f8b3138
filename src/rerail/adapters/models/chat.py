"""Chat models over pydantic-ai: its providers, and servers with OpenAI's protocol (contract M1).

Rules of this file:
- All waits and retries happen here, within the role's time.
- A reply is handed on as it is. The caller decides whether it answers the question.
- Each question opens its own connection and closes it: no connection stays open, and no event loop is remembered.
- No failure is raised from its original exception, which holds the request, and with it the key.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal

from rerail.adapters.models.endpoints import Endpoint
from rerail.errors import SettingsError
from rerail.i18n import one_by_one, tell
from rerail.kernel.policy import Policy, backoff
from rerail.ports import Model, ModelFailed, Prompt, Reply
from rerail.values.redaction import Scrub

if TYPE_CHECKING:
    from rerail.adapters.models.pydantic_ai import Client, Way

Output = Literal["auto", "native", "tool", "text"]

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Tokens:
    """Usage of all attempts, useless ones included."""

    input: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.output + other.output)


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A reply: a mapping, or the raw text."""

    answer: Any
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Failed:
    """No reply; the message says why and what to do."""

    message: str
    transient: bool = False
    retry_after: float | None = None
    shape: bool = False  # the server may not know this way of asking for JSON
    tokens: Tokens = Tokens()


Outcome = ChatAnswer | Failed


class ChatModel:
    """A language model and its fallbacks, in order.

    ``timeout`` is for one model, all attempts and waits together; the next one has as long again. ``prices`` are for a
    million tokens, in and out. ``policy`` gives the delays between attempts.
    """

    def __init__(
        self,
        first: Endpoint,
        *others: Endpoint,
        temperature: float | None = 0.0,
        timeout: float = 60.0,
        retries: int = 2,
        output: Output = "auto",
        prices: Mapping[str, tuple[float, float]] | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Check the names; SettingsError says what is wrong or missing. No import, no connection yet."""
        if find_spec("pydantic_ai") is None or find_spec("openai") is None:  # without an import
            raise SettingsError(tell("refuse.mind.no_extra"), hint=tell("hint.mind.no_extra"))
        self._endpoints = tuple(endpoint.checked() for endpoint in (first, *others))
        self._temperature = temperature
        self._timeout = timeout
        self._retries = retries
        self._output: Output = output
        self._prices = dict(prices or {})
        self._policy = policy or Policy()
        self._learnt: dict[Endpoint, Way] = {}  # the way of asking for JSON that worked with a server

    def __repr__(self) -> str:
        return f"<model {', else '.join(endpoint.name for endpoint in self._endpoints)}>"

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model, then its fallbacks; `ModelFailed` if none replied."""
        tokens, cost = Tokens(), 0.0
        failures: list[Failed] = []
        for endpoint in self._endpoints:
            outcome = await self._ask(endpoint, prompt)
            tokens += outcome.tokens
            cost += self._cost(endpoint, outcome.tokens)
            if isinstance(outcome, ChatAnswer):
                return _reply(outcome.answer, endpoint, tokens, cost)
            failures.append(outcome)
        raise self._failed(failures, _reply(None, endpoint, tokens, cost))

    def _failed(self, failures: list[Failed], spent: Reply) -> ModelFailed:
        scrub = Scrub(key for endpoint in self._endpoints for key in endpoint.keys(os.environ))
        waits = [one.retry_after for one in failures if one.transient and one.retry_after is not None]
        return ModelFailed(
            one_by_one((scrub.message(one.message) for one in failures), "text.after"),
            transient=any(one.transient for one in failures),
            retry_after=min(waits, default=None),
            spent=spent,
        )

    def _cost(self, endpoint: Endpoint, tokens: Tokens) -> float:
        into, out = self._prices.get(endpoint.name) or self._prices.get(endpoint.model) or (0.0, 0.0)
        return (tokens.input * into + tokens.output * out) / _MILLION

    async def _ask(self, endpoint: Endpoint, prompt: Prompt) -> Outcome:
        # In a thread: the libraries take seconds to load, and a client reads the machine's certificates.
        client = await asyncio.to_thread(_connect, endpoint)
        if isinstance(client, Failed):
            return client
        try:
            async with asyncio.timeout(self._timeout) as limit, client:
                return await self._try(client, endpoint, prompt, limit)
        except TimeoutError:
            late = tell("model.timeout", name=endpoint.name, place=endpoint.place, seconds=self._timeout)
            return Failed(late, transient=True)

    async def _try(self, client: Client, endpoint: Endpoint, prompt: Prompt, limit: asyncio.Timeout) -> Outcome:
        """Try until there is a reply, or a retry cannot help."""
        from rerail.adapters.models.pydantic_ai import attempt

        ways = self._ways(client, endpoint)
        retry = 0
        while True:
            outcome = await attempt(
                client, endpoint, prompt, ways[0], temperature=self._temperature, seconds=self._timeout
            )
            if isinstance(outcome, ChatAnswer):
                self._learnt[endpoint] = ways[0]
                return outcome
            if outcome.shape and len(ways) > 1:
                ways = ways[1:]
                continue
            retry += 1
            wait = outcome.retry_after
            wait = backoff(self._policy, retry, uuid.uuid4()) if wait is None else wait
            if retry > self._retries or not outcome.transient or not _in_time(wait, limit):
                return outcome
            await asyncio.sleep(wait)

    def _ways(self, client: Client, endpoint: Endpoint) -> tuple[Way, ...]:
        from rerail.adapters.models.pydantic_ai import ways

        if self._output != "auto":
            return (self._output,)
        learnt = self._learnt.get(endpoint)
        return ways(client) if learnt is None else (learnt,)


def _connect(endpoint: Endpoint) -> Any:
    from rerail.adapters.models.pydantic_ai import connect

    return connect(endpoint)


def _reply(answer: Any, endpoint: Endpoint, tokens: Tokens, cost: float) -> Reply:
    return Reply(answer, endpoint.name, tokens.input, tokens.output, cost)


def _in_time(wait: float, limit: asyncio.Timeout) -> bool:
    end = limit.when()
    return end is None or asyncio.get_running_loop().time() + wait < end


class RoleModels:
    """Hands each question to the model of its role."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self._models = dict(models)

    def __repr__(self) -> str:
        return f"<models {', '.join(f'{role}: {model!r}' for role, model in self._models.items())}>"

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(self._models)

    async def complete(self, prompt: Prompt) -> Reply:
        model = self._models.get(prompt.role)
        if model is None:
            hint = tell("model.set_name", role=prompt.role)
            raise ModelFailed(tell("model.no_role", role=prompt.role, hint=hint), transient=False)
        return await model.complete(prompt)
