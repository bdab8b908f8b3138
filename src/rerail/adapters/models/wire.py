"""The one place that talks to pydantic-ai; imported when the first question is asked, for it takes seconds to load.

Rules of this file:
- Nothing is asked twice: pydantic-ai and the SDKs below it are told to try once, and no answer is checked.
- What goes wrong is returned, not raised: the exceptions hold the request, and with it the key.
"""

from __future__ import annotations

import copy
import inspect
import os
import re
from typing import Any, Final, Literal

import msgspec
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from rerail.adapters.models.endpoints import PROVIDERS, Endpoint
from rerail.adapters.models.failures import RAISED, failure_of
from rerail.adapters.models.outcomes import Answered, Failed, Outcome, Tokens
from rerail.core.nearest import nearest
from rerail.core.scrub import Scrub
from rerail.i18n import tell
from rerail.ports import Prompt

Client = Model[Any]
Way = Literal["native", "tool", "text"]

ROLE_HEADER: Final = "Rerail-Role"
_TOOL: Final = "answer"
_SHAPE: Final = "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n{schema}"
# They hold the model to a schema, and do not show it: one that has not read it fills the shape with nonsense.
_SILENT: Final = frozenset({"", "ollama", "vllm", "litellm"})


# -- Connecting ---------------------------------------------------------------------------------------------------


class _Unready(Exception):
    """The settings do not lead to a model."""


def connect(endpoint: Endpoint) -> Client | Failed:
    """A client for the model, not yet connected; blocks for a moment."""
    try:
        return _client(endpoint)
    except UserError as error:
        return Failed(f"{endpoint.name}: {_advice(error)}")
    except (_Unready, ImportError) as error:
        # For a provider whose own package is not there, pydantic-ai's message names it.
        return Failed(f"{endpoint.name}: {error}")


def _client(endpoint: Endpoint) -> Client:
    if endpoint.base_url and not endpoint.provider:
        # Not OpenAI's own provider, which would send OPENAI_API_KEY to whoever is there.
        provider = OpenAICompatibleProvider("openai-compatible", base_url=endpoint.base_url, api_key=_key(endpoint))
        return OpenAIChatModel(endpoint.model, provider=provider)
    return infer_model(f"{endpoint.provider}:{endpoint.model}", lambda name: _provider(name, endpoint))


def _key(endpoint: Endpoint) -> str | None:
    """The key of the variable that the settings name; None leaves it to the provider, which knows its own."""
    if not endpoint.key_env:
        return None
    key = os.environ.get(endpoint.key_env)
    if not key:
        raise _Unready(tell("model.no_key", variable=endpoint.key_env))
    return key


def _provider(name: str, endpoint: Endpoint) -> Provider[Any]:
    try:
        kind = infer_provider_class(name)
    except ValueError:
        near = nearest(name, sorted(PROVIDERS))
        hint = (
            tell("model.provider_near", near=near)
            if near
            else tell("model.providers", names=", ".join(sorted(PROVIDERS)))
        )
        raise _Unready(tell("model.unknown_provider", name=name, hint=hint)) from None
    given = {"base_url": endpoint.base_url, "api_key": _key(endpoint)}
    options = {option: value for option, value in given.items() if value}
    if not options:
        return infer_provider(name)
    takes = inspect.signature(kind.__init__).parameters
    for option, setting in (("base_url", "model.base_url"), ("api_key", "model.key_env")):
        if option in options and (option not in takes or name.startswith("gateway/")):
            raise _Unready(tell("model.provider_setting", name=name, setting=setting))
    return kind(**options)


def _advice(error: UserError) -> str:
    """What pydantic-ai says is missing, without the part about programs of one's own."""
    text = str(error).partition(" To try Pydantic AI")[0]
    return re.sub(r" or pass it via `[^`]*`", "", text)


# -- Asking -------------------------------------------------------------------------------------------------------


def ways(client: Client) -> tuple[Way, ...]:
    """How a model may be asked for JSON, the best way first.

    A schema that the server enforces is best, and what small local servers know, too; tools need a model that was
    trained for them; a text can be asked for everywhere.
    """
    native: tuple[Way, ...] = ("native",) if client.profile.get("supports_json_schema_output", False) else ()
    tool: tuple[Way, ...] = ("tool",) if client.profile.get("supports_tools", True) else ()
    return (*native, *tool, "text")


async def attempt(
    client: Client, endpoint: Endpoint, prompt: Prompt, way: Way, *, temperature: float | None, seconds: float
) -> Outcome:
    """Ask once."""
    spelt = way == "text" or endpoint.provider in _SILENT
    try:
        response = await model_request(
            client,
            [_message(prompt, spelt=spelt)],
            model_settings=_settings(client, prompt.role, temperature, seconds),
            model_request_parameters=_parameters(prompt, way),
        )
    except RAISED as error:
        return failure_of(error, endpoint)
    tokens = Tokens(response.usage.input_tokens, response.usage.output_tokens)
    if response.finish_reason == "content_filter":
        return Failed(tell("model.refused", name=endpoint.name, said=_refusal(response)), tokens=tokens)
    return Answered(_answer(response, Scrub(endpoint.keys(os.environ))), tokens)


def _message(prompt: Prompt, *, spelt: bool) -> ModelRequest:
    schema = msgspec.json.encode(prompt.schema).decode()
    system = f"{prompt.system}\n\n{_SHAPE.format(schema=schema)}" if spelt else prompt.system
    return ModelRequest([SystemPromptPart(_sendable(system)), UserPromptPart(_sendable(prompt.user))])


def _sendable(text: str) -> str:
    """The text, with a question mark for each half of a character: tools return them, and UTF-8 has none."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _parameters(prompt: Prompt, way: Way) -> ModelRequestParameters:
    schema: dict[str, Any] = copy.deepcopy(dict(prompt.schema))
    # Not strict, nor left to pydantic-ai, which then closes every object that does not say that it is open: free
    # arguments could only be empty.
    if way == "native":
        shape = OutputObjectDefinition(schema, name=_TOOL, strict=False)
        return ModelRequestParameters(output_mode="native", output_object=shape)
    if way == "tool":
        tool = ToolDefinition(
            name=_TOOL, parameters_json_schema=schema, description="Give the answer.", strict=False, kind="output"
        )
        return ModelRequestParameters(output_mode="tool", output_tools=[tool], allow_text_output=False)
    return ModelRequestParameters()


def _settings(client: Client, role: str, temperature: float | None, seconds: float) -> ModelSettings:
    """The settings of a request, without those that the model would only warn about."""
    settings = ModelSettings(max_retries=0, timeout=seconds, extra_headers={ROLE_HEADER: role})
    if temperature is not None and not _reasons(client):
        settings["temperature"] = temperature
    for name in client.unsupported_settings:
        settings.pop(name, None)
    return settings


def _reasons(client: Client) -> bool:
    """Whether the model thinks first, and so takes no temperature."""
    profile: dict[str, Any] = dict(client.profile)
    may_not = profile.get("openai_supports_reasoning_effort_none") and not profile.get("thinking_enabled_by_default")
    return bool(profile.get("openai_supports_reasoning")) and not may_not


# -- Answers ------------------------------------------------------------------------------------------------------


def _answer(response: ModelResponse, scrub: Scrub) -> Any:
    """A mapping if there is one, else the text; of tools called at once, the first."""
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    given = calls[0].args if calls else "".join(part.content for part in response.parts if isinstance(part, TextPart))
    if isinstance(given, dict):
        return scrub.value(given)
    text = given or ""
    try:
        found = msgspec.json.decode(text)
        return scrub.value(found) if isinstance(found, dict) else scrub.text(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return scrub.text(text)


def _refusal(response: ModelResponse) -> str:
    said = (response.provider_details or {}).get("refusal")
    return f": {said}" if isinstance(said, str) and said else ""
