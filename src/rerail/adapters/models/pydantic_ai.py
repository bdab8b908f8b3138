"""The one module that talks to pydantic-ai; imported lazily, as it takes seconds to load.

Rules of this file:
- No request is sent twice: pydantic-ai and the SDKs below it are told to try once, and no answer is checked.
- Failures are returned, not raised: the exceptions hold the request, and with it the key.
- An error is classified by its type and status, never by its text: the server's own message is quoted, and decides
  nothing. Texts are not redacted here; the code that shows them does that.
"""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from pydantic_ai import exceptions as problems
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers import Provider, infer_provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from rerail.adapters.models.chat import ChatAnswer, Failed, Outcome, Tokens
from rerail.adapters.models.endpoints import PROVIDERS, Endpoint
from rerail.i18n import tell
from rerail.kernel.foreign import attribute
from rerail.ports import Prompt
from rerail.values.names import nearest
from rerail.values.redaction import Scrub

Client = Model[Any]
Way = Literal["native", "tool", "text"]

ROLE_HEADER: Final = "Rerail-Role"
_TOOL: Final = "answer"
_SHAPE: Final = "Answer with one JSON object and nothing else. It must fit this JSON Schema:\n{schema}"
# These servers enforce a schema without showing it to the model, which then fills the shape with nonsense.
_SILENT: Final = frozenset({"", "ollama", "vllm", "litellm"})


# -- Connecting ---------------------------------------------------------------------------------------------------


class _Unready(Exception):
    """The settings do not lead to a model."""


def connect(endpoint: Endpoint) -> Client | Failed:
    """Return a client for the model, not yet connected; blocks for a moment."""
    try:
        return _client(endpoint)
    except problems.UserError as error:
        return Failed(f"{endpoint.name}: {_advice(error)}")
    except (_Unready, ImportError) as error:
        # For a provider with a missing package, pydantic-ai's message names it.
        return Failed(f"{endpoint.name}: {error}")


def _client(endpoint: Endpoint) -> Client:
    if endpoint.base_url and not endpoint.provider:
        # Not OpenAI's own provider, which would send OPENAI_API_KEY to any server.
        provider = OpenAICompatibleProvider("openai-compatible", base_url=endpoint.base_url, api_key=_key(endpoint))
        return OpenAIChatModel(endpoint.model, provider=provider)
    return infer_model(f"{endpoint.provider}:{endpoint.model}", lambda name: _provider(name, endpoint))


def _key(endpoint: Endpoint) -> str | None:
    """Return the key of the configured variable; None leaves it to the provider, which knows its own."""
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


def _advice(error: problems.UserError) -> str:
    """Return what pydantic-ai says is missing, without its advice for custom programs."""
    text = str(error).partition(" To try Pydantic AI")[0]
    return re.sub(r" or pass it via `[^`]*`", "", text)


# -- Asking -------------------------------------------------------------------------------------------------------


def ways(client: Client) -> tuple[Way, ...]:
    """Return the ways to ask a model for JSON, the best first.

    A schema that the server enforces is best, and small local servers know it, too. Tools need a model that was trained
    for them. A plain text works everywhere.
    """
    native: tuple[Way, ...] = ("native",) if client.profile.get("supports_json_schema_output", False) else ()
    tool: tuple[Way, ...] = ("tool",) if client.profile.get("supports_tools", True) else ()
    return (*native, *tool, "text")


async def attempt(
    client: Client, endpoint: Endpoint, prompt: Prompt, way: Way, *, temperature: float | None, seconds: float
) -> Outcome:
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
    return ChatAnswer(_answer(response, Scrub(endpoint.keys(os.environ))), tokens)


def _message(prompt: Prompt, *, spelt: bool) -> ModelRequest:
    schema = msgspec.json.encode(prompt.schema).decode()
    system = f"{prompt.system}\n\n{_SHAPE.format(schema=schema)}" if spelt else prompt.system
    return ModelRequest([SystemPromptPart(_sendable(system)), UserPromptPart(_sendable(prompt.user))])


def _sendable(text: str) -> str:
    """Return the text with a question mark for each lone surrogate: tools return them, and UTF-8 has none."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _parameters(prompt: Prompt, way: Way) -> ModelRequestParameters:
    schema: dict[str, Any] = copy.deepcopy(dict(prompt.schema))
    # Not strict, nor left to pydantic-ai, which closes every object not declared open: free arguments would be empty.
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
    """Return a request's settings; drop any that the model would only warn about."""
    settings = ModelSettings(max_retries=0, timeout=seconds, extra_headers={ROLE_HEADER: role})
    if temperature is not None and not _reasons(client):
        settings["temperature"] = temperature
    for name in client.unsupported_settings:
        settings.pop(name, None)
    return settings


def _reasons(client: Client) -> bool:
    """Return True for a reasoning model, which takes no temperature."""
    profile: dict[str, Any] = dict(client.profile)
    may_not = profile.get("openai_supports_reasoning_effort_none") and not profile.get("thinking_enabled_by_default")
    return bool(profile.get("openai_supports_reasoning")) and not may_not


# -- Answers ------------------------------------------------------------------------------------------------------


def _answer(response: ModelResponse, scrub: Scrub) -> Any:
    """Return the mapping if there is one, else the text; of parallel tool calls, the first."""
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


# -- Errors ---------------------------------------------------------------------------------------------------------

# Expected errors of a request. Any other error is a bug, and is not treated as a failure of the model.
Raised = problems.ModelAPIError | problems.UnexpectedModelBehavior | problems.UserError
RAISED: Final = (problems.ModelAPIError, problems.UnexpectedModelBehavior, problems.UserError)

_QUOTED: Final = 300
# Servers without `response_format` or `tools` answer with one of these.
_NOT_LIKE_THAT: Final = (400, 422, 501)
_TRANSIENT: Final = (
    problems.ModelRateLimitError,
    problems.ModelUnavailableError,
    problems.ModelServerError,
    problems.ModelConnectionError,
)


def failure_of(error: Raised, endpoint: Endpoint) -> Failed:
    """Return the failure that an exception stands for."""
    what = f"{endpoint.name}: {_what(error, endpoint)}"
    said = _said(error)
    return Failed(
        message=f"{what} ({said})" if said else what,
        transient=_transient(error),
        retry_after=attribute(error, "retry_after"),
        shape=_of_shape(error),
    )


def _transient(error: Raised) -> bool:
    if isinstance(error, _TRANSIENT):
        return not _of_shape(error)
    if isinstance(error, problems.ModelHTTPError):
        return error.status_code == 408
    # A success with a body that is not JSON: a gateway that broke off.
    return isinstance(error, problems.ModelAPIError) and type(error) is problems.ModelAPIError


def _of_shape(error: Raised) -> bool:
    known = (
        problems.ModelAuthenticationError,
        problems.ModelNotFoundError,
        problems.ModelContextWindowExceededError,
        problems.ModelQuotaExceededError,
    )
    return (
        isinstance(error, problems.ModelHTTPError)
        and error.status_code in _NOT_LIKE_THAT
        and not isinstance(error, known)
    )


def _what(error: Raised, endpoint: Endpoint) -> str:
    match error:
        case problems.ModelAuthenticationError():
            return tell("model.key_refused", status=_status(error), advice=_about_the_key(endpoint))
        case problems.ModelNotFoundError():
            return f"{_unknown(endpoint)}{_suggested(error)}"
        case problems.ModelQuotaExceededError():
            return tell("model.quota")
        case problems.ModelContextWindowExceededError():
            return tell("model.too_long")
        case problems.ModelRateLimitError():
            wait = tell("model.asked_to_wait", seconds=error.retry_after) if error.retry_after is not None else ""
            return tell("model.too_many", wait=wait)
        case problems.ModelTimeoutError():
            return tell("model.late", place=endpoint.place)
        case problems.ModelConnectionError():
            return _disconnected(error, endpoint)
        case problems.ModelUnavailableError() | problems.ModelServerError():
            return tell("model.server_failed", status=_status(error))
        case problems.ModelHTTPError():
            return tell("model.rejected", status=_status(error))
        case problems.ModelAPIError() | problems.UnexpectedModelBehavior():
            return tell("model.no_model_there", place=endpoint.place, ending=_ending(endpoint))
        case _:
            return tell("model.not_like_this")


def _status(error: problems.ModelAPIError) -> str:
    return tell("model.with_status", status=error.status_code) if isinstance(error, problems.ModelHTTPError) else ""


def _about_the_key(endpoint: Endpoint) -> str:
    if endpoint.variables:
        return tell("model.check", variable=endpoint.variables[0])
    return tell("model.name_variable")


def _unknown(endpoint: Endpoint) -> str:
    text = tell("model.unknown", model=endpoint.model, place=endpoint.place)
    return tell("model.and_base_url", text=text, ending=_ending(endpoint)) if endpoint.base_url else text


def _ending(endpoint: Endpoint) -> str:
    """Suggest /v1: nearly all compatible servers live below it, and it is often forgotten."""
    return "" if not endpoint.base_url or endpoint.place.endswith("/v1") else tell("model.ending")


def _suggested(error: problems.ModelAPIError) -> str:
    name = error.suggested_model_id if isinstance(error, problems.ModelHTTPError) else None
    return tell("model.did_you_mean", name=name) if name else ""


def _disconnected(error: problems.ModelConnectionError, endpoint: Endpoint) -> str:
    if error.phase == "connect":
        hint = tell("model.server_running") if endpoint.base_url else tell("model.network_up")
        return tell("model.no_connection", place=endpoint.place, hint=hint)
    return tell("model.broke", place=endpoint.place)


def _said(error: Raised) -> str:
    """Return the server's or the system's message, shortened."""
    if isinstance(error, problems.ModelAPIError) and error.body is not None:
        text = _words(error.body)
    else:
        # The libraries wrap each other; the innermost error has the cause.
        text = next((str(one) for one in reversed(list(_chain(error))) if str(one)), "")
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _words(body: Any) -> str:
    """Return the message of an error's body, which has many shapes."""
    while isinstance(body, Mapping):
        body = next((body[name] for name in ("error", "message", "detail") if body.get(name)), str(dict(body)))
    return str(body)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__
