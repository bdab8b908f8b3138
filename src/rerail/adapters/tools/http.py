"""HTTP requests as tools (contract M2), with the standard library alone.

Rules of this file:
- Data fills placeholders of a URL and never changes its shape: values are percent-encoded, and no value can add a path
  segment, a query, a host or a header.
- Requests go to allowed hosts only, redirects included. The default is the hosts of the tool's URL.
- An error says how sure it is: nothing was sent (an ordinary failure), the server refused (its status), or the request
  was sent and no whole answer came back (`lost`, contract X4).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Unpack
from urllib.parse import quote

from rerail.adapters.executors.threads import THREADS
from rerail.adapters.tools import templates
from rerail.adapters.tools.http_exchange import LITERAL, Exchange, Request, host_of
from rerail.adapters.tools.spec import Looks, Options, make_spec, unknown
from rerail.adapters.tools.templates import TextTemplate, Values, text_of
from rerail.context import Context, is_secret
from rerail.i18n import tell
from rerail.plan.step import EffectName

_EFFECTS: Final = {"GET": "read", "HEAD": "read", "PUT": "repeatable", "DELETE": "repeatable"}
KEY_HEADER: Final = "Idempotency-Key"
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class HttpTool(Looks):
    """An HTTP request that plans can make: `rerail.http("rate", "GET", "https://rates.example/{currency}")`.

    Each `{placeholder}` is an argument of the tool: percent-encoded in the address, so that no value can change its
    shape. The output is {"status": …, "headers": {…}, "body": …}; a status of 400 and above is a failure.

    Options:
        headers       of the request; placeholders are filled
        query         {name: value} behind the address; lists are repeated, what was not given is left out
        body          a text, or JSON; a whole placeholder keeps its type
        effect        what calling it twice does; by the method: GET and HEAD "read", PUT and DELETE "repeatable",
                      others "once"
        allow_hosts   the hosts it may talk to, redirects included (default: the address's own, at its port)
        max_bytes     the most bytes of a response (10,000,000)
        key_header    the header of a `once` request that carries the call's idempotency key ("Idempotency-Key");
                      None: none does
        schema        a JSON schema of the arguments, instead of one made from the placeholders
        description   what models and `rerail tools` are told about it
        timeout       seconds for one call (a step's own beats it; without both, run.step_timeout)
        alternatives  other tools for the same job, by name, tried when this one fails
        provider      a name under which run.provider_concurrency limits calls
        check         what the output must meet: {"schema": …, "non_empty": true, "keys": […]}
        trust_output  True: outputs that look like errors are believed; or {"ignore": […], "suspect": […]}
        verify        a read-only look at the effect, of any of args, output, before, ctx: true, false or Verified
        probe         a read-only look before the call, of args and ctx; `verify` gets what it saw as `before`
        secrets       environment variables with values to redact everywhere; includes those of `{env.NAME}`
        cost          what one call costs, for run.max_cost (default: nothing)
        errors        "not_done": whatever it raises or answers as an error, nothing happened; "by_status": it makes one
                      request, and the status decides; without, the effect of a `once` call that raised is unknown
        settle        seconds until `verify` can see the effect (5 for "once"); "never": absence is never believed
        idempotent_for  seconds for which the service remembers the call's key: a lost answer is asked for again
        on_doubt      "wait" or "fail", if its effect is in doubt
        fenced        True (default): right before it is sent, its process makes sure that it still owns the run

    `{key}` in headers and body of a `once` request is the call's idempotency key, unless its schema has an argument of
    that name.
    """

    is_async = False  # another system does the work, outside of the event loop
    wants_context = True  # it has the timeout

    def __init__(
        self,
        name: str,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        effect: EffectName | None = None,
        allow_hosts: Sequence[str] | None = None,
        max_bytes: int = 10_000_000,
        key_header: str | None = KEY_HEADER,
        schema: Mapping[str, Any] | bool | None = None,
        **options: Unpack[Options],
    ) -> None:
        """Read the placeholders; ValueError says what is wrong with the declaration."""
        super().__init__(name, options, ("effect", "schema", *_WORDS))
        label = tell("tool.label", name=name)
        self._method = method.upper()
        if self._method not in _METHODS:
            raise ValueError(
                tell("tool.unknown_method", label=label, method=method, known=unknown(self._method, _METHODS))
            )
        self._address = _address(label, url)
        self._headers = {
            key: templates.parse(value, tell("tool.label.header", label=label, key=key))
            for key, value in _checked(label, headers).items()
        }
        self._query = {
            key: _parsed(value, tell("tool.label.query", label=label, key=key)) for key, value in (query or {}).items()
        }
        self._body = _parsed(body, f"{label}: body")
        self._hosts = None if allow_hosts is None else _hosts(label, allow_hosts)
        self._max_bytes = max_bytes
        if self._hosts is None and self._address.literal_host is None:
            raise ValueError(tell("tool.http.host_by_data", label=label, url=url))
        kind = _EFFECTS.get(self._method, "once") if effect is None else effect
        if key_header is not None and not isinstance(key_header, str):
            raise ValueError(tell("tool.http.key_header", name=name, given=key_header))
        if templates.is_once(kind):
            self._carry_key(label, key_header, own=templates.has_key(schema))
        shape = templates.schema_for(name, self._templates(), _inside(self._query), schema)
        declared = [self._method, url, dict(headers or {}), dict(query or {}), body]
        fenced: Options = {"fenced": True}
        self.spec = make_spec(
            name, _opened(shape, self._body, schema), kind, declared,
            {**fenced, **templates.knowing(options, self._templates())}, runs="request", fenced=True,
            keyed=any(template.hands_key for template in self._templates()),
        )  # fmt: skip

    def _carry_key(self, label: str, header: str | None, *, own: bool) -> None:
        """Send the idempotency key of each call: where declared, and in a header of its own (contract E2)."""
        if not own:
            self._headers = {name: one.keyed() for name, one in self._headers.items()}
            self._body = _mapped(self._body, TextTemplate, TextTemplate.keyed)
        if header and header.lower() not in {name.lower() for name in self._headers}:
            _checked(label, {header: ""})
            self._headers = {**self._headers, header: templates.parse(f"{{{templates.KEY}}}", label)}

    def limited_to(self, hosts: Sequence[str]) -> HttpTool:
        """Return the tool with the settings' list of allowed hosts instead of its own."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._hosts = _hosts(tell("tool.label", name=self.spec.name), hosts)
        return other

    async def call(self, args: dict[str, Any], ctx: Any = None) -> Any:
        """Make the request in a thread; cancelling closes the connection."""
        # The step's timeout beats the tool's; the context holds it.
        timeout = getattr(ctx, "timeout", None) or self.spec.timeout
        fence = ctx.ensure_owner if isinstance(ctx, Context) else None
        request = self._request(Values(args, ctx))
        exchange = Exchange(request, self._allowed(request), timeout, self._max_bytes, fence)
        try:
            return await THREADS.run(exchange.run)
        except asyncio.CancelledError:
            exchange.abort()
            raise

    @staticmethod
    def answer_of(output: Any) -> Any:
        """Return the answer's body without status and headers: an error may hide in a 200 (contract X9)."""
        return output.get("body") if isinstance(output, dict) else output

    def _templates(self) -> list[TextTemplate]:
        spots = (self._address.templates, self._headers.values(), _templates_in(self._query), _templates_in(self._body))
        return [template for some in spots for template in some]

    def _allowed(self, request: Request) -> tuple[str, ...]:
        """Return the hosts that it may talk to: its own at its own port, and at the port of TLS."""
        if self._hosts is not None:
            return self._hosts
        own = self._address.literal_host or ""
        return (f"{own}:{request.port}", *((f"{own}:443",) if request.port == 80 else ()))

    def _request(self, values: Values) -> Request:
        address = self._address
        query = "&".join(filter(None, [address.query.fill(values, _encoded), _query(self._query, values)]))
        headers = {key: one.fill(values, _header) for key, one in self._headers.items() if not one.absent(values)}
        private = frozenset(key for key, one in headers.items() if self._headers[key].variables or is_secret(key, one))
        body, content_type = _content(self._body, values)
        if content_type and "content-type" not in {key.lower() for key in headers}:
            headers["Content-Type"] = content_type
        return Request(
            method=self._method,
            scheme=address.scheme,
            host=host_of(address.host.fill(values, _host_part)),
            port=_port(address.port.fill(values)),
            target=_path(address.path, values) + (f"?{query}" if query else ""),
            headers=headers,
            body=body,
            private=private,
        )


_WORDS = ("headers", "query", "body", "allow_hosts", "max_bytes", "key_header")
http = HttpTool


# --- Declaring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Address:
    """A URL in parts, each with its placeholders."""

    scheme: str
    host: TextTemplate
    port: TextTemplate
    path: TextTemplate
    query: TextTemplate

    @property
    def templates(self) -> tuple[TextTemplate, ...]:
        return (self.host, self.port, self.path, self.query)

    @property
    def literal_host(self) -> str | None:
        """Return the host if it has no placeholder."""
        return None if self.host.names else host_of("".join(str(part) for part in self.host.parts))


def _address(label: str, url: str) -> _Address:
    match = re.fullmatch(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?", url, re.IGNORECASE)
    if match is None:
        raise ValueError(tell("tool.http.no_address", label=label, url=url))
    scheme, place, path, query = match.groups()
    if "@" in place:
        raise ValueError(tell("tool.http.password", label=label))
    # The colon before the port is the last one, and not inside [an IPv6 address].
    spot = re.fullmatch(r"(\[[^\]]*\]|[^:]+)(?::(.+))?", place)
    if spot is None:
        raise ValueError(tell("tool.http.no_host", label=label, url=url))
    return _Address(
        scheme=scheme.lower(),
        host=templates.parse(spot[1], f"{label}: host"),
        port=templates.parse(spot[2] or ("443" if scheme.lower() == "https" else "80"), f"{label}: port"),
        path=_quoted(templates.parse(path or "/", f"{label}: url")),
        query=_quoted(templates.parse(query or "", f"{label}: url")),
    )


def _quoted(template: TextTemplate) -> TextTemplate:
    """Percent-encode characters that a URL must not hold."""
    return TextTemplate(tuple(quote(one, safe=LITERAL) if isinstance(one, str) else one for one in template.parts))


def _checked(label: str, headers: Mapping[str, str] | None) -> Mapping[str, str]:
    for key, value in (headers or {}).items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key) or re.search(r"[\r\n\0]", value):
            raise ValueError(tell("tool.http.no_header", label=label, key=key, value=value))
    return headers or {}


def _hosts(label: str, hosts: Sequence[str]) -> tuple[str, ...]:
    if isinstance(hosts, str):
        raise ValueError(tell("tool.http.allow_hosts", label=label, hosts=hosts))
    return tuple(host.lower().rstrip(".") for host in hosts)


def _mapped(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return the structure with every part of that kind changed; keys are not data."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _mapped(one, kind, change) for key, one in value.items()}
    return [_mapped(one, kind, change) for one in value] if isinstance(value, list | tuple) else value


def _parsed(value: Any, where: str) -> Any:
    return _mapped(value, str, lambda text: templates.parse(text, where))


def _templates_in(value: Any) -> list[TextTemplate]:
    if isinstance(value, TextTemplate):
        return [value]
    inner = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return [template for one in inner for template in _templates_in(one)]


def _inside(query: Mapping[str, Any]) -> list[str]:
    """Return the placeholders that may be lists: `?tag=a&tag=b`."""
    return [one.whole for one in query.values() if isinstance(one, TextTemplate) and one.whole]


def _opened(shape: Any, body: Any, given: Any) -> Any:
    """Allow any type for whole placeholders of a body: they keep their JSON type."""
    whole = [one.whole for one in _templates_in(body) if one.whole]
    if given is not None or not whole:
        return shape
    return {
        **shape,
        "properties": {**shape["properties"], **{name: {} for name in whole if name in shape["properties"]}},
    }


# --- Filling -------------------------------------------------------------------------------------------------------


def _encoded(name: str, text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise templates.bad_argument(tell("error.http.bad_argument", name=name, error=error)) from error


def _segment(name: str, text: str) -> str:
    # DELETE /users/{id} must not become DELETE /users/.
    if not text:
        raise templates.bad_argument(tell("error.http.empty_argument", name=name))
    return _encoded(name, text)


def _path(template: TextTemplate, values: Values) -> str:
    path = template.fill(values, _segment)
    # Dots are never encoded, and a server would walk up the folders.
    if template.names and any(segment in (".", "..") for segment in path.split("/")):
        raise templates.bad_argument(tell("error.http.dots", path=path))
    return path


def _host_part(name: str, text: str) -> str:
    if not re.fullmatch(r"[0-9A-Za-z]([0-9A-Za-z.-]*[0-9A-Za-z])?", text):
        raise templates.bad_argument(tell("error.http.no_host_part", name=name, text=text))
    return text


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise templates.bad_argument(tell("error.http.no_port", text=text))
    return int(text)


def _query(query: Mapping[str, Any], values: Values) -> str:
    pairs: list[str] = []
    for key, template in query.items():
        value = _filled(template, values)
        many = value if isinstance(value, list) else [value]
        pairs += [f"{quote(key, safe='')}={_encoded(key, text_of(one))}" for one in many if one is not None]
    return "&".join(pairs)


def _filled(value: Any, values: Values) -> Any:
    """Fill the structure's placeholders; a whole one keeps its JSON type."""
    return _mapped(value, TextTemplate, lambda one: values.get(one.whole) if one.whole else one.fill(values))


def _header(name: str, text: str) -> str:
    if re.search(r"[\r\n\0]", text):
        raise templates.bad_argument(tell("error.http.line_break", name=name))
    return text


def _content(body: Any, values: Values) -> tuple[bytes | None, str]:
    """Return the body's bytes and content type."""
    if body is None:
        return None, ""
    if isinstance(body, TextTemplate) and not body.whole:
        return body.fill(values).encode("utf-8", "surrogatepass"), "text/plain; charset=utf-8"
    text = json.dumps(_filled(body, values), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass"), "application/json"
