"""Language models over pydantic-ai: any provider it knows, and any server that speaks OpenAI's protocol (SPEC M1).

Rules of this file:
- All waiting and asking again is done here, within the time that the role has.
- What came back is handed on as it is. Whether it answers the question is for the caller to say.
- Each question opens its own connection and closes it: nothing is left open, and no event loop is remembered.
- No failure is raised from the exception that it tells of, which holds the request, and with it the key.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from rerail.adapters.models.endpoints import Endpoint
from rerail.adapters.models.outcomes import Answered, Failed, Outcome, Tokens
from rerail.core.policy import Policy, backoff
from rerail.core.scrub import Scrub
from rerail.errors import SettingsError
from rerail.i18n import one_by_one, tell
from rerail.ports import ModelFailed, Prompt, Reply

if TYPE_CHECKING:
    from rerail.adapters.models.wire import Client, Way

Output = Literal["auto", "native", "tool", "text"]

_MILLION: Final = 1_000_000


class ChatModel:
    """A language model, and those that stand in for it, in order.

    ``timeout`` is for one of them, all attempts and waits together; the next one has as long again. ``prices`` are
    for a million tokens, in and out; ``waits`` says how long to wait between attempts.
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
        waits: Policy | None = None,
    ) -> None:
        """Check the names; SettingsError says what is wrong or missing. Nothing is imported or connected yet."""
        _require_installed()
        self._endpoints = tuple(endpoint.checked() for endpoint in (first, *others))
        self._temperature = temperature
        self._timeout = timeout
        self._retries = retries
        self._output: Output = output
        self._prices = dict(prices or {})
        self._waits = waits or Policy()
        self._learnt: dict[Endpoint, Way] = {}  # the way of asking for JSON that a server was found to know

    def __repr__(self) -> str:
        return f"<model {', else '.join(endpoint.name for endpoint in self._endpoints)}>"

    async def complete(self, prompt: Prompt) -> Reply:
        """Ask the model, then those that stand in for it; `ModelFailed` if none gave a reply."""
        tokens, cost = Tokens(), 0.0
        failures: list[Failed] = []
        for endpoint in self._endpoints:
            outcome = await self._ask(endpoint, prompt)
            tokens += outcome.tokens
            cost += self._cost(endpoint, outcome.tokens)
            if isinstance(outcome, Answered):
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
        """Attempts until there is a reply, or no sense in another one."""
        from rerail.adapters.models.wire import attempt

        ways = self._ways(client, endpoint)
        retry = 0
        while True:
            outcome = await attempt(
                client, endpoint, prompt, ways[0], temperature=self._temperature, seconds=self._timeout
            )
            if isinstance(outcome, Answered):
                self._learnt[endpoint] = ways[0]
                return outcome
            if outcome.shape and len(ways) > 1:
                ways = ways[1:]
                continue
            retry += 1
            wait = outcome.retry_after
            wait = backoff(self._waits, retry, uuid.uuid4()) if wait is None else wait
            if retry > self._retries or not outcome.transient or not _in_time(wait, limit):
                return outcome
            await asyncio.sleep(wait)

    def _ways(self, client: Client, endpoint: Endpoint) -> tuple[Way, ...]:
        from rerail.adapters.models.wire import ways

        if self._output != "auto":
            return (self._output,)
        learnt = self._learnt.get(endpoint)
        return ways(client) if learnt is None else (learnt,)


def _require_installed() -> None:
    """SettingsError if the extra is missing; looks without importing."""
    if importlib.util.find_spec("pydantic_ai") is None or importlib.util.find_spec("openai") is None:
        raise SettingsError(tell("refuse.mind.no_extra"), hint=tell("hint.mind.no_extra"))


def _connect(endpoint: Endpoint) -> Any:
    from rerail.adapters.models.wire import connect

    return connect(endpoint)


def _reply(answer: Any, endpoint: Endpoint, tokens: Tokens, cost: float) -> Reply:
    return Reply(answer, endpoint.name, tokens.input, tokens.output, cost)


def _in_time(wait: float, limit: asyncio.Timeout) -> bool:
    end = limit.when()
    return end is None or asyncio.get_running_loop().time() + wait < end
