"""What pydantic-ai raises, in our words: what happened, what to do, and whether asking again may help.

Rules of this file:
- Types and statuses are read, never texts. What the server said is quoted, and decides nothing.
- Texts are not scrubbed here; who shows them does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelServerError,
    ModelTimeoutError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
    UserError,
)

from rerail.adapters.models.endpoints import Endpoint
from rerail.adapters.models.outcomes import Failed
from rerail.core.foreign import attribute
from rerail.i18n import tell

# All that a request may end with. Whatever else comes up is a bug, and is not to be taken for the weather.
Raised = ModelAPIError | UnexpectedModelBehavior | UserError
RAISED: Final = (ModelAPIError, UnexpectedModelBehavior, UserError)

_QUOTED: Final = 300
# Servers that do not know `response_format` or `tools` say so with one of these.
_NOT_LIKE_THAT: Final = (400, 422, 501)
_TRANSIENT: Final = (ModelRateLimitError, ModelUnavailableError, ModelServerError, ModelConnectionError)


def failure_of(error: Raised, endpoint: Endpoint) -> Failed:
    """The failure that an exception stands for."""
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
    if isinstance(error, ModelHTTPError):
        return error.status_code == 408
    # A success whose body is no JSON: a gateway that broke off.
    return isinstance(error, ModelAPIError) and type(error) is ModelAPIError


def _of_shape(error: Raised) -> bool:
    known = (ModelAuthenticationError, ModelNotFoundError, ModelContextWindowExceededError, ModelQuotaExceededError)
    return isinstance(error, ModelHTTPError) and error.status_code in _NOT_LIKE_THAT and not isinstance(error, known)


def _what(error: Raised, endpoint: Endpoint) -> str:
    """What happened, and what to do about it."""
    match error:
        case ModelAuthenticationError():
            return tell("model.key_refused", status=_status(error), advice=_about_the_key(endpoint))
        case ModelNotFoundError():
            return f"{_unknown(endpoint)}{_suggested(error)}"
        case ModelQuotaExceededError():
            return tell("model.quota")
        case ModelContextWindowExceededError():
            return tell("model.too_long")
        case ModelRateLimitError():
            wait = tell("model.asked_to_wait", seconds=error.retry_after) if error.retry_after is not None else ""
            return tell("model.too_many", wait=wait)
        case ModelTimeoutError():
            return tell("model.late", place=endpoint.place)
        case ModelConnectionError():
            return _disconnected(error, endpoint)
        case ModelUnavailableError() | ModelServerError():
            return tell("model.server_failed", status=_status(error))
        case ModelHTTPError():
            return tell("model.rejected", status=_status(error))
        case ModelAPIError() | UnexpectedModelBehavior():
            return tell("model.no_model_there", place=endpoint.place, ending=_ending(endpoint))
        case _:
            return tell("model.not_like_this")


def _status(error: ModelAPIError) -> str:
    return tell("model.with_status", status=error.status_code) if isinstance(error, ModelHTTPError) else ""


def _about_the_key(endpoint: Endpoint) -> str:
    if endpoint.variables:
        return tell("model.check", variable=endpoint.variables[0])
    return tell("model.name_variable")


def _unknown(endpoint: Endpoint) -> str:
    text = tell("model.unknown", model=endpoint.model, place=endpoint.place)
    return tell("model.and_base_url", text=text, ending=_ending(endpoint)) if endpoint.base_url else text


def _ending(endpoint: Endpoint) -> str:
    """Nearly all compatible servers live below /v1, and nearly everybody forgets it once."""
    return "" if not endpoint.base_url or endpoint.place.endswith("/v1") else tell("model.ending")


def _suggested(error: ModelAPIError) -> str:
    name = error.suggested_model_id if isinstance(error, ModelHTTPError) else None
    return tell("model.did_you_mean", name=name) if name else ""


def _disconnected(error: ModelConnectionError, endpoint: Endpoint) -> str:
    if error.phase == "connect":
        hint = tell("model.server_running") if endpoint.base_url else tell("model.network_up")
        return tell("model.no_connection", place=endpoint.place, hint=hint)
    return tell("model.broke", place=endpoint.place)


def _said(error: Raised) -> str:
    """What the server or the system said, short."""
    if isinstance(error, ModelAPIError) and error.body is not None:
        text = _words(error.body)
    else:
        # The libraries wrap each other; the innermost one knows.
        text = next((str(one) for one in reversed(list(_chain(error))) if str(one)), "")
    text = " ".join(text.split())
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _words(body: Any) -> str:
    """The message of an error's body, which is shaped in many ways."""
    while isinstance(body, Mapping):
        body = next((body[name] for name in ("error", "message", "detail") if body.get(name)), str(dict(body)))
    return str(body)


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__
