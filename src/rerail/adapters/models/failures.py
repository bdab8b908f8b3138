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
        retry_after=getattr(error, "retry_after", None),
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
            return f"the key was refused{_status(error)}: {_about_the_key(endpoint)}"
        case ModelNotFoundError():
            return f"{_unknown(endpoint)}{_suggested(error)}"
        case ModelQuotaExceededError():
            return "the account's quota or credit is used up: top it up, or set model.fallback"
        case ModelContextWindowExceededError():
            return "the question is too long for the model: lower model.max_context_chars"
        case ModelRateLimitError():
            wait = f", asked to wait {error.retry_after:g} s" if error.retry_after is not None else ""
            return f"too many requests{wait}"
        case ModelTimeoutError():
            return f"no answer from {endpoint.place} in time"
        case ModelConnectionError():
            return _disconnected(error, endpoint)
        case ModelUnavailableError() | ModelServerError():
            return f"the server failed{_status(error)}"
        case ModelHTTPError():
            return f"the request was rejected{_status(error)}"
        case ModelAPIError() | UnexpectedModelBehavior():
            return f"{endpoint.place} did not answer as a model does: is this the right address{_ending(endpoint)}?"
        case _:
            return "the model cannot be asked like this; see model.name and model.output"


def _status(error: ModelAPIError) -> str:
    return f" with status {error.status_code}" if isinstance(error, ModelHTTPError) else ""


def _about_the_key(endpoint: Endpoint) -> str:
    if endpoint.variables:
        return f"check {endpoint.variables[0]}"
    return "name the environment variable that holds it in model.key_env"


def _unknown(endpoint: Endpoint) -> str:
    text = f"there is no model {endpoint.model!r} at {endpoint.place}: check model.name"
    return f"{text}, and model.base_url{_ending(endpoint)}" if endpoint.base_url else text


def _ending(endpoint: Endpoint) -> str:
    """Nearly all compatible servers live below /v1, and nearly everybody forgets it once."""
    return "" if not endpoint.base_url or endpoint.place.endswith("/v1") else " (most end in /v1)"


def _suggested(error: ModelAPIError) -> str:
    name = error.suggested_model_id if isinstance(error, ModelHTTPError) else None
    return f"; did you mean {name!r}?" if name else ""


def _disconnected(error: ModelConnectionError, endpoint: Endpoint) -> str:
    if error.phase == "connect":
        hint = "is the server running there?" if endpoint.base_url else "is the network up?"
        return f"no connection to {endpoint.place}: {hint}"
    return f"the connection to {endpoint.place} broke before the answer was whole"


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
