"""Which category an error belongs to: from what is typed first, from what is only said last (SPEC H1, H2).

Rules of this file:
- Pure and total: any evidence gives a category; nothing is raised, nothing is asked of the world.
- Typed evidence (a hint, a code, a status, a class, an exit code) beats the user's patterns, which beat ours.
- Foreign exceptions are known by class name; their packages are never imported.
- A pattern stands here only if its words mean the same in every program. The first row that matches decides, so
  a narrow row stands above a wide one.
- Work is bounded: only the two ends of a long message are read, and no pattern repeats without a limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rerail.core import codes
from rerail.core.codes import Category
from rerail.core.patterns import BadPattern, search

_T, _P, _O, _D = Category.TRANSIENT, Category.PARAMETER, Category.TOOL, Category.DEPENDENCY
_S, _X, _U = Category.DECOMPOSITION, Category.PERMANENT, Category.UNKNOWN


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one failure, as the tool or its adapter reported it."""

    message: str = ""
    #: The tool's or API's own error code: "ThrottlingException", "ECONNREFUSED", or one of ``codes.ALL``.
    code: str | None = None
    #: Class names along the exception's MRO, most derived first, as "module.QualName" without "builtins".
    types: tuple[str, ...] = ()
    #: HTTP status.
    status: int | None = None
    #: Exit status of a command.
    exit_code: int | None = None
    #: The error carried ``suggest``.
    suggested: bool = False


_NO_PATTERNS: Final[Mapping[Category, Sequence[str]]] = {}


def classify(evidence: Evidence, patterns: Mapping[Category, Sequence[str]] = _NO_PATTERNS) -> Category:
    """The category of an error; ``patterns`` are the user's own regular expressions per category."""
    seen = _see(evidence)
    return (
        _by_typed_evidence(seen)
        or _by_patterns(seen, patterns)
        or _by_names(seen)
        or _by_message(seen.message)
        or _first(_TEXTS, _words(seen.code or ""))
        or _by_leaning(seen)
        or _U
    )


# --- The evidence, made safe to look at ------------------------------------------------------------------------------

_END = 2048  # Of a long message the first and last so many characters are read: what went wrong stands at the ends.
_MOST_TYPES = 32  # No real MRO is longer.


def _see(evidence: Evidence) -> Evidence:
    """The same evidence, bounded, with wrong types read as the nearest right ones."""
    code = "" if evidence.code is None else _text(evidence.code).strip()
    named = codes.ALL.get(code)
    return Evidence(
        message=_text(evidence.message),
        code=code if named is None or named.category else "",  # TOOL_FAILED and the like say nothing.
        types=_names(evidence.types),
        status=_number(evidence.status) or _number(code),  # APIs put the HTTP status into `code` as well.
        exit_code=_number(evidence.exit_code),
        suggested=bool(evidence.suggested),
    )


def _text(value: object) -> str:
    """The two ends of a text; bytes are decoded, and what is neither text nor number counts as silence."""
    match value:
        case str():
            return value if len(value) <= 2 * _END else f"{value[:_END]}\n{value[-_END:]}"
        case bytes() | bytearray():
            ends = value if len(value) <= 2 * _END else value[:_END] + b"\n" + value[-_END:]
            return ends.decode("utf-8", "replace")
        case int() if abs(value) < 10**18:  # Longer numbers are no codes, and costly to print.
            return str(value)
    return ""


def _number(value: object) -> int | None:
    """A status or exit code, also when it is held as text."""
    match value:
        case bool():
            return None
        case int():
            return int(value)
        case str() if re.fullmatch(r"-?[0-9]{1,3}", value.strip()):
            return int(value.strip())
    return None


def _names(value: object) -> tuple[str, ...]:
    many = value[:_MOST_TYPES] if isinstance(value, tuple | list) else [value]
    return tuple(_text(name) for name in many if isinstance(name, str))


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATOR = re.compile(r"[\s_\-]+")
_ENDLESS = re.compile(r"(\w{60})\w+", re.ASCII)  # No word is longer; cut, so that \w+ in a pattern is bounded too.


def _words(text: str) -> str:
    """A text as lower-case words: "ThrottlingException", "rate-limit" and "API_KEY" are taken apart."""
    apart = _SEPARATOR.sub(" ", _HUMP.sub(" ", text))
    return _ENDLESS.sub(r"\1", apart).replace("\u2019", "'").strip().lower()


# --- Tables ----------------------------------------------------------------------------------------------------------

_Row = tuple[Category, re.Pattern[str]]


def _row(category: Category, *alternatives: str) -> _Row:
    # ASCII: a boundary lies between a Latin word and a Chinese one, as in "API密钥无效".
    return category, re.compile("|".join(alternatives), re.ASCII)


def _first(rows: Sequence[_Row], words: str) -> Category | None:
    return next((category for category, pattern in rows if words and pattern.search(words)), None)


def _index(table: Mapping[Category, str]) -> dict[str, Category]:
    return {name: category for category, names in table.items() for name in names.split()}


# --- Statuses --------------------------------------------------------------------------------------------------------

_STATUSES: Final[Mapping[int, Category]] = {
    401: _X,
    402: _X,  # Payment required.
    403: _X,
    407: _X,  # The proxy wants a login.
    408: _T,
    410: _X,  # Gone, and for good: what it was about, or the service itself.
    423: _T,  # Locked: somebody else is at work on it.
    424: _D,  # Failed dependency.
    425: _T,  # Too early.
    426: _X,  # Another protocol is demanded.
    429: _T,
    451: _X,  # Withheld for legal reasons.
    501: _O,  # Not implemented, as NotImplementedError.
    505: _O,
}


def _by_status(status: int | None, code: str, message: str) -> Category | None:
    """What an HTTP status means: one of the table, else 4xx is about the request and 5xx about the moment."""
    if status is None or not 400 <= status <= 599:
        return None
    return _by_stretched_status(status, code, message) or _STATUSES.get(status) or (_P if status < 500 else _T)


def _by_stretched_status(status: int, code: str, message: str) -> Category | None:
    """What services report under a status that usually means something else, if code or words leave no doubt."""
    if status in (400, 403, 429) and (found := _first(_LIMITS, _words(code))):
        return found
    if status == 403 and _RATE_LIMIT.search(_words(message)):
        return _T
    if status == 404 and _NO_MODEL.search(_words(f"{code} {message}")):
        return _X
    if status == 429 and _OUT_OF_MONEY.search(_words(message)):
        return _X
    return None


# Common enough to be told apart: 403 "API rate limit exceeded", 429 "insufficient_quota", 404 "model_not_found".
_RATE_LIMIT = re.compile(r"\brate limit")
_NO_MODEL = re.compile(r"\bmodel (?:\S{1,60} ){0,3}(?:not found|does not exist|not exist)")
_OUT_OF_MONEY = re.compile(r"insufficient (?:quota|balance|funds|credits?)\b|credit balance|余额不足|欠费", re.ASCII)

# --- Exit codes ------------------------------------------------------------------------------------------------------

_EXIT_CODES: Final[Mapping[int, Category]] = {
    124: _T,  # timeout(1)
    126: _X,  # Found, but cannot be executed.
    127: _X,  # Command not found.
    137: _T,  # Killed: by the out-of-memory killer, a scheduler, a person.
    143: _T,  # Terminated.
    -9: _T,  # The same two, as subprocess reports them.
    -15: _T,
}

# --- Error codes with one meaning everywhere -------------------------------------------------------------------------

_CODES: Final = _index(
    {
        _T: """
            ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN EPIPE ETIMEDOUT EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN
            ENETRESET EAGAIN EWOULDBLOCK EBUSY EINTR EAI_AGAIN ENOTFOUND ESOCKETTIMEDOUT
            UNAVAILABLE DEADLINE_EXCEEDED RESOURCE_EXHAUSTED ABORTED INTERNAL
        """,
        _X: """
            EACCES EPERM EROFS ENOSPC EDQUOT EMFILE
            UNAUTHENTICATED PERMISSION_DENIED
            -32601
        """,
        _P: """
            ENOENT EEXIST EISDIR ENOTDIR ENOTEMPTY EINVAL ENAMETOOLONG E2BIG ERANGE EDOM EFBIG ELOOP
            INVALID_ARGUMENT NOT_FOUND ALREADY_EXISTS FAILED_PRECONDITION OUT_OF_RANGE
            -32600 -32602
        """,
        _O: "ENOMEM ENOEXEC ENOSYS ENOTSUP UNIMPLEMENTED DATA_LOSS -32603 -32700",
    }
)

# --- Classes ---------------------------------------------------------------------------------------------------------

# By bare name, or by full name where a bare one means different things in different packages.
_TYPES: Final = _index(
    {
        # Time and network: the standard library; httpx, httpx2, requests, aiohttp, urllib3; websockets, anyio; redis,
        # psycopg, botocore; model and Google clients; dead workers of process pools and of Ray.
        _T: """
            TimeoutError TimeoutExpired ConnectionError BlockingIOError InterruptedError gaierror herror
            IncompleteReadError RemoteDisconnected IncompleteRead BadStatusLine ContentTooShortError SSLEOFError
            SSLZeroReturnError BrokenWorkerProcess
            Timeout TimeoutException ConnectTimeout ReadTimeout WriteTimeout PoolTimeout ConnectTimeoutError
            ReadTimeoutError APITimeoutError ServerTimeoutError ConnectionTimeoutError SocketTimeoutError
            ConnectionTimeout
            TransportError NetworkError ConnectError ReadError WriteError CloseError RemoteProtocolError ProtocolError
            ProxyError ChunkedEncodingError RetryError MaxRetryError NewConnectionError NameResolutionError
            ClosedPoolError EmptyPoolError ServerConnectionError ServerDisconnectedError ClientConnectionError
            ClientConnectorError ClientOSError ClientPayloadError ConnectionClosed ConnectionClosedError
            ClosedResourceError BrokenResourceError EndOfStream
            BusyLoadingError TryAgainError ClusterDownError MasterDownError MaxConnectionsError
            SerializationFailure DeadlockDetected LockNotAvailable QueryCanceled AdminShutdown CrashShutdown
            CannotConnectNow ConnectionFailure ConnectionException TooManyConnections
            EndpointConnectionError HTTPClientError ProxyConnectionError ResponseStreamingError
            RateLimitError RateLimited APIConnectionError InternalServerError ServiceUnavailable ServiceUnavailableError
            TooManyRequests ResourceExhausted DeadlineExceeded GatewayTimeout BadGateway Aborted Unavailable
            OverloadedError
            BrokenProcessPool BrokenExecutor WorkerCrashedError NodeDiedError RayActorError ActorDiedError
            ActorUnavailableError LocalRayletDiedError
        """,
        _X: """
            PermissionError ImportError ModuleNotFoundError SSLCertVerificationError CertificateError
            ClientConnectorCertificateError
            AuthenticationError AuthorizationError PermissionDeniedError PermissionDenied Forbidden Unauthorized
            Unauthenticated NoPermissionError InsufficientPrivilege InvalidPassword InvalidAuthorizationSpecification
            NoCredentialsError PartialCredentialsError CredentialRetrievalError TokenRetrievalError
            UnauthorizedSSOTokenError SSOTokenLoadError NoRegionError ProfileNotFound ConfigNotFound
            DefaultCredentialsError RefreshError DiskFull
        """,
        # KeyError and IndexError: the call asked for a key or place that its data does not have; the same call again
        # would end the same, other arguments may not.
        _P: """
            ValueError TypeError LookupError KeyError IndexError ArithmeticError FileExistsError IsADirectoryError
            NotADirectoryError
            ValidationError ParamValidationError InvalidURL UnsupportedProtocol BadRequestError NotFoundError
            ConflictError UnprocessableEntityError NotFound InvalidArgument BadRequest AlreadyExists FailedPrecondition
            psycopg.errors.SyntaxError psycopg2.errors.SyntaxError ProgrammingError DataError IntegrityError
        """,
        # The tool itself is at fault: a bug, a gap, an answer that it could not read, no memory.
        _O: """
            NotImplementedError MemoryError RecursionError SystemError AssertionError AttributeError NameError
            SyntaxError BufferError ReferenceError
            requests.exceptions.JSONDecodeError DecodingError ContentDecodingError ContentTypeError TooManyRedirects
            OutOfMemoryError LocalProtocolError
        """,
    }
)

# Classes that say where it went wrong, not why: the text decides, and only if it is silent this.
_LEANINGS: Final = _index(
    {
        _T: "OperationalError InterfaceError URLError",
        _P: "FileNotFoundError",
        _O: "CalledProcessError ChildProcessError InternalError",
        # Not even a leaning, though a base class would have one.
        _U: "SSLError HTTPError HTTPStatusError",
    }
)


def _look_up(table: Mapping[str, Category], name: str) -> Category | None:
    return table.get(name) or table.get(name.rpartition(".")[2])


def _telling(types: Sequence[str]) -> Sequence[str]:
    """The classes before the first that leaves it to the text."""
    return types[: next((n for n, name in enumerate(types) if _look_up(_LEANINGS, name)), len(types))]


def _by_types(types: Sequence[str]) -> Category | None:
    """The category of the most derived class that has one."""
    return next((found for name in _telling(types) if (found := _look_up(_TYPES, name))), None)


# --- Names: error codes and class names, as words -------------------------------------------------------------------

# Services report limits under many codes; a limit on the rate passes by itself, a spent quota does not.
_LIMITS: Final = (
    _row(
        _T,
        r"throttl",
        r"too many (?:requests|connections|concurrent)",
        r"\brate (?:limit|exceed)",
        r"(?:request|connections?) limit",
        r"throughput exceeded",
        r"concurren\w+ (?:\w+ ){0,3}(?:limit|exceed)",
        r"slow ?down",
    ),
    _row(_X, r"\bquota", r"insufficient (?:balance|funds|credits?)", r"\bbilling", r"payment required"),
)

_NAMES: Final = (
    *_LIMITS,
    # What calls itself retryable.
    _row(
        _T,
        r"retryable",
        r"retry (?:later|request)",
        r"try again",
        r"temporarily|temporary (?:error|failure)",
        r"transient",
    ),
    # A token that only marks a place in a list or a request is an argument like any other.
    _row(_P, r"(?:next|page|paging|pagination|continuation|client|request|cursor) token"),
    # Access.
    _row(
        _X,
        r"\bden(?:ied|y)\b",
        r"unauthori[sz]ed",
        r"unauthenticated",
        r"forbidden",
        r"not (?:authori[sz]ed|authenticated|permitted)",
        r"\bauth(?:entication|ori[sz]ation)? (?:error|exception|failed|failure|required|expired)",
        r"authentication",
        r"credentials?\b",
        r"(?:expired|invalid|missing|bad|wrong|revoked) (?:access |api |auth |bearer |id |identity |refresh )?"
        r"(?:token|key|password|licen[sc]e|signature)\b",
        r"token expired",
        r"suspended",
        r"(?:subscription|opt in|login) required",
    ),
    # Configuration.
    _row(_X, r"^config(?:uration)? (?:file )?(?:error|exception|missing|not found)", r"not configured", r"misconfigur"),
    # The request is at fault: what it names is not there, is there already, or is not acceptable.
    _row(
        _P,
        r"not (?:found|exist|supported|valid|empty|acceptable|allowed)",
        r"no such",
        r"\bunknown (?!error|exception|fault|failure)\w",
        r"exists?\b|\balready\b",
        r"invalid",
        r"illegal",
        r"malformed",
        r"validation",
        r"\bbad (?:request|input|argument|parameter)",
        r"unsupported",
        r"too (?:large|long|big|small|short|many)",
        r"(?:size|length) (?:limit )?exceeded",
        r"mismatch",
        r"conflict",
        r"duplicate",
        r"precondition",
        r"unprocessable",
        r"missing (?:required )?(?:parameter|argument|field|value|input)",
        r"out of (?:range|bounds)",
        r"\bin use\b",
    ),
    # The moment is at fault.
    _row(
        _T,
        r"time(?:d)? ?out",
        r"deadline exceeded",
        r"unavailable",
        r"overload",
        r"\bbusy\b",
        r"not ready",
        r"\binternal(?: (?:server|service|error|failure|fault|exception)|$)",
        r"\b(?:server|backend) (?:internal|side|error|exception)",
        r"\b(?:server|service|system) (?:internal|failure|failed|fault)",
        r"bad gateway",
        r"connection (?:error|refused|reset|closed|aborted|lost|failed|failure)",
        r"network (?:error|failure|unreachable)",
        r"deadlock",
        r"lock (?:timeout|wait)",
    ),
    _row(_D, r"(?:failed|missing|unmet) dependency", r"dependency (?:failed|failure|missing)"),
    _row(_S, r"prerequisite"),
    _row(_O, r"not implemented", r"unimplemented", r"out of memory", r"(?:parse|decode|decoding|parser) (?:error|exc)"),
)


def _by_names(seen: Evidence) -> Category | None:
    """The category that the error code names, else the class names, up to one that leaves it to the text."""
    names = [seen.code or "", *(name.rpartition(".")[2] for name in _telling(seen.types))]
    return next((found for name in names if (found := _first(_NAMES, _words(name)))), None)


# --- Texts -----------------------------------------------------------------------------------------------------------

_GAP = r"[^.!?。]{0,60}?"  # A few words of the same sentence.
_NOT_THERE = (
    r"(?:(?:could |can)?(?: ?not|n't) (?:be )?(?:found|exist|available|set|defined|installed)|missing"
    r"|unknown(?! (?:error|exception|failure|reason|server|condition))"
    r"|no longer exists?|不存在|缺失|未找到|找不到|没有找到|未设置|未配置|未定义)"
)
_KEY = (
    r"(?:api ?key|access key|secret(?: key)?|(?:access|auth|bearer|id|api|security|session|refresh) token|token"
    r"|credentials?|passwords?|passphrase|licen[sc]e|login|signature|authentication)"
)
_KEY_ZH = r"(?:密钥|秘钥|令牌|凭证|凭据|密码|证书|许可证|签名|api ?key|token)"
_SERVER = r"(?:server|service|system|database|host|api|gateway|endpoint|backend|cluster|provider|upstream)"

_TEXTS: Final = (
    # Rate limits.
    _row(
        _T,
        r"too (?:many|frequent) (?:\w+ ){0,2}(?:requests|calls|connections|attempts|queries)",
        r"too (?:many requests|frequently)",
        r"throttl",
        r"\brate ?limit",
        r"\brate (?:\w+ ){0,4}exceed|exceed\w* (?:\w+ ){0,3}rate\b",
        r"\b(?:request|call|api) rates?\b",
        r"(?:requests|calls|queries|transactions) (?:per|a) (?:second|minute|hour|unit)|rate at which",
        rf"\b(?:number of|maximum|allowed) {_GAP}(?:requests|calls)\b{_GAP}exceed",
        r"exceed\w* the (?:maximum |allowed ){0,2}number of (?:\w+ )?(?:requests|calls)",
        r"slow down|throughput (?:\w+ ){0,3}exceeded",
        rf"(?:maximum|too many|limits?)\b{_GAP}\b(?:concurren|simultaneous|connections\b)",
        r"concurren\w+ (?:\w+ ){0,3}limit",
        r"(?:in|is) cool ?(?:down|ing)",
        r"限流|限速|频率(?:限制|超限|过高|超过)|(?:过于|太|过)频繁",
        r"(?:请求|调用|访问)(?:次数|数|量)?(?:过多|过快|太快|太多)",
        r"并发(?:数|量)?(?:超限|超出|过高|过多|已满|限制)|冷却中",
    ),
    # Spent quotas and empty purses.
    _row(
        _X,
        rf"\bquotas?\b{_GAP}(?:exceed|exhaust|reach|deplet|used up|run out)",
        rf"\b(?:exceed\w*|exhaust\w*|insufficient|reach\w*|beyond|out of|over)\b{_GAP}\bquotas?\b",
        r"insufficient (?:\w+ )?(?:balance|funds?|credits?)\b",
        r"credit balance|out of credits?|payment (?:\w+ )?(?:required|declined)|(?:your|and) billing",
        r"billing (?:hard|limit|is)",
        r"(?:配额|额度|用量|流量|次数).{0,6}(?:不足|用完|用尽|耗尽|超|已满)|超(?:出|过).{0,4}(?:配额|额度)",
        r"余额不足|欠费",
    ),
    # The plan lacks a step.
    _row(
        _S,
        r"missing (?:\w+ ){0,2}prerequisite",
        rf"prerequisites?\b{_GAP}(?:missing|not |n't |unmet|required|absent)",
        r"(?:step|task)s? (?:is |are )?missing (?:from|in) the plan",
        r"\b(?:log ?in|sign ?in|authenticate|connect|start|open|create|load|initiali[sz]e|run|call|execute)"
        r" (?:\S{1,60} ){0,3}first\b",
        r"(?:previous|prior|preceding|earlier) step (?:is |was )?(?:missing|required|needed)",
        # Nobody is logged in yet, as in "请先登录"; who is and has to be somebody else, or again, has no access.
        r"(?:not|n't|never) (?:\w+ )?(?:logged|signed) ?in\b",
        r"\bno(?:body| one| user| account) (?:is |was )?(?:\w+ )?(?:logged|signed) ?in\b",
        r"please (?:log ?in|sign ?in|authenticate)\b(?! (?:with|as|using|again)\b)",
        r"缺少.{0,4}前置|前置.{0,6}(?:缺失|缺少|未完成|不满足|不存在|未执行|没有)|缺少.{0,4}步骤",
        r"(?:任务|步骤)分解|未先执行|请先",
    ),
    # What an earlier step should have left is not there.
    _row(
        _D,
        rf"\b(?:input|upstream|intermediate) (?:file|data|output|artifact|result|dataset)s?\b{_GAP}"
        rf"(?:{_NOT_THERE}|empty|unavailable)",
        rf"\b(?:artifact|dependency|dependencies)\b{_GAP}(?:{_NOT_THERE}|failed|unmet|not (?:met|satisfied)|expired)",
        r"missing (?:\w+ )?(?:artifact|dependency|dependencies|upstream|input (?:file|data|artifact))",
        rf"(?:output|result)s? (?:of|from) (?:\S{{1,60}} ){{0,2}}(?:step|task)\b{_GAP}"
        rf"(?:{_NOT_THERE}|empty|unavailable)",
        r"\b(?:no|missing) (?:output|result|data|file)s? (?:of|from) (?:\S{1,60} ){0,2}(?:step|task)\b",
        r"failed dependency|depends on another \w+ that failed",
        r"上游.{0,8}(?:缺失|失败|为空|不存在|没有|不可用)|(?:依赖|产物|工件|输入(?:文件|数据)).{0,8}"
        r"(?:缺失|失败|为空|不存在|没有|未满足|过期|不可用)|缺少.{0,4}(?:上游|依赖|输入(?:文件|数据)|产物|工件)",
        r"^(?:没有|无)(?:数据|文件|输入)$",
    ),
    # Access.
    _row(
        _X,
        rf"\b(?:permission|access)s?\b{_GAP}(?:denied|forbidden|refused)|denied access",
        r"(?:not|n't|never) (?:\w+ )?(?:authori[sz]ed|permitted|entitled)\b",
        r"un(?:authori[sz]ed|authenticated)",
        r"\bforbidden\b",
        r"\b(?:insufficient|lacks?|missing|not have|\w+n't have|without|no)(?! internet| network) (?:\w+ ){0,4}"
        r"(?:permissions?|privileges?|rights|access|scopes?|authori[sz]ation)\b",
        r"(?:authentication|authori[sz]ation|login|log ?in|sign ?in) (?:\w+ )?(?:failed|failure|error|required|denied)",
        r"(?:account|user|subscription|project) (?:is |was |has been )?(?:\w+ )?"
        r"(?:suspended|disabled|deactivated|closed|blocked|locked out|banned|restricted|expired)",
        r"not (?:subscribed|signed up|opted in|authenticated)|please (?:log ?in|sign ?in|authenticate)\b",
        r"权限(?:不足|不够|被拒)|(?:没有|无|缺少|缺乏|未获得).{0,6}权限|无权|未授权|未经授权",
        r"(?:禁止|拒绝|不允许)访问|访问被(?:拒绝|禁止)",
        r"(?:认证|鉴权|身份验证|登录|授权)(?:失败|错误|已?过期|失效)|未登录",
        r"账[号户].{0,6}(?:停用|封禁|冻结|禁用|欠费|注销)",
    ),
    # Faults of the request that rows below would take for something else.
    _row(
        _P,
        r"validation errors? for",
        r"(?:next|page|paging|pagination|continuation|client|request|cursor) token",
        r"(?:problem|error|mistake|fault) (?:with|in) (?:the|your) (?:request|input|argument|parameter)",
    ),
    # Keys and certificates.
    _row(
        _X,
        rf"\b{_KEY}s? (?:\w+ ){{0,3}}(?:invalid|expired|incorrect|revoked|wrong|required|rejected|{_NOT_THERE})",
        rf"\b(?:invalid|incorrect|expired|missing|wrong|bad|revoked|no|unable to locate|could not find|can't find)"
        rf" (?:\w+ ){{0,2}}{_KEY}\b",
        r"(?:valid|proper|correct) credentials",
        r"certificate verify failed|self[ -]signed certificate",
        r"certificate (?:has |is )?(?:expired|revoked|untrusted)",
        r"certificate signed by unknown|unable to get local issuer",
        rf"{_KEY_ZH}.{{0,6}}(?:无效|错误|过期|失效|不正确|有误|缺失|为空|不存在|未配置|未设置|吊销)",
        rf"(?:无效|错误|过期|失效|缺少|没有|未配置|未设置).{{0,6}}{_KEY_ZH}",
    ),
    # Configuration, models, playbooks, programs: what only a person can put in place.
    _row(
        _X,
        rf"\b(?:config(?:uration)?(?: file)?|environment variable|env var)\b{_GAP}(?:{_NOT_THERE}|invalid)",
        r"missing (?:\w+ )?(?:config(?:uration)?|environment variable|env var)\b|\b(?:not|n't) (?:been )?configured",
        rf"\b(?:model|playbook)s? (?:\S{{1,60}} ){{0,5}}{_NOT_THERE}",
        r"(?:no such|unknown) (?:model|playbook|command|tool)\b",
        r"(?:model|playbook|模型|配置(?:文件|项)?|剧本|环境变量)[\w .:/`'\"“”「」]{0,40}?"
        r"(?:不存在|缺失|未找到|找不到|未设置|未配置|已下线)",
        r"(?:缺少|没有|无)(?:\w+ ?)?(?:配置|环境变量|模型)|配置(?:文件)?(?:错误|无效|有误)|未配置",
        r"command not found|\bsh: (?:[0-9]{1,6}: )?[^ :]{1,60}: not found",
        r"not recognized as an internal or external command|命令(?:不存在|未找到)|找不到命令",
        r"no module named|cannot import name|cannot open shared object|executable (?:file )?not found",
        r"no space left|disk (?:is )?full|read only file ?system|磁盘(?:空间)?(?:已满|不足)|空间不足",
        r"\b(?:the|this|that|requested) (?:operation|action|method|command|feature) (?:\w+ )?(?:is|was)(?: not|n't) "
        r"(?:\w+ )?supported\b(?! (?:with|when|while|for (?:\w+ ){0,3}(?:type|format|value|argument|parameter)))",
        r"(?:no longer|not any ?more) (?:supported|available|maintained)|discontinued|has been retired|已下线",
        r"已停用|已废弃",
    ),
    # Time.
    _row(
        _T,
        r"(?<![\"'`=])(?<!invalid )(?<!illegal )\btime ?out\b"
        r"(?![\"'`=])(?! (?:must|should|value|param|argument|option|setting|is not|is invalid|cannot|can't))",
        r"\b(?:timed|times|timing) ?out\b|deadline (?:has been |was )?exceeded|took too long",
        r"超时(?!参数|设置|配置|值|时间(?:无效|必须|不))|响应时间过长",
    ),
    # Network.
    _row(
        _T,
        r"\bconnection (?:\w+ ){0,3}(?:refused|reset|closed|aborted|lost|dropped|broken|failed|terminated|interrupted)",
        r"\bconnection (?:error|failure|issue|problem|pool)",
        r"(?:failed|unable|cannot|can't|could(?: not|n't)) (?:to )?(?:be )?(?:connect|reach|resolve host|establish)",
        r"no (?:internet|network)",
        r"network (?:\w+ )?(?:error|unreachable|failure|issue|problem|down|timeout|interrupt)",
        r"(?:reset|closed) by (?:the )?(?:peer|remote)|peer closed|remote end closed|server disconnected",
        r"socket hang up",
        r"no route to host|host (?:is )?(?:unreachable|down)|name resolution|name or service not known|getaddrinfo",
        r"\blost connection|connection terminat|\bdisconnected\b|disconnect/reset|circuit breaker",
        r"broken pipe|unexpected eof|eof occurred|\becon[nr]\w+|\betimedout\b|\beai again\b",
        r"网络(?:连接|请求|通信|传输|出现|发生)?(?:错误|异常|中断|波动|不可达|故障|不稳定|失败|断开|问题|抖动)",
        r"连接.{0,4}(?:失败|拒绝|重置|中断|断开|异常|错误|关闭|丢失)|(?:无法|不能)(?:连接|解析(?:域名|主机))",
        r"连接不上|域名解析",
    ),
    # The server.
    _row(
        _T,
        r"\binternal (?:\w+ ){0,2}(?:error|failure|exception|issue|problem|fault)",
        r"\bserver(?: side)? (?:error|issue|problem|failure|exception)",
        r"(?:issue|problem|error|failure|exception) (?:\w+ ){0,2}(?:with|in|on|internal to|from) (?:the |an )?"
        r"(?:\w+ ){0,6}?(?:server|service|backend)\b",
        rf"\b{_SERVER}\b (?:\w+ ){{0,2}}(?:encountered|experienc\w+|threw|crashed|unavailable|failure)\b",
        rf"\b{_SERVER}\b (?:\w+ )?(?:can't|cannot|couldn't|could not|unable to|failed to|didn't|did not) "
        r"(?:\w+ )?(?:complete|process|handle|fulfil\w*|respond|serve|perform)\b",
        rf"\b{_SERVER}\b{_GAP}(?:is|are|was)(?:n't| not) (?:\w+ )?(?:available|responding|reachable|ready)",
        rf"\b{_SERVER} (?:is |are |was )?(?:\w+ )?(?:overloaded|busy|down|starting|restarting|shutting down)\b",
        rf"(?:unexpected|unknown|unspecified) (?:error|exception|failure|condition)\b{_GAP}\brequest",
        rf"\brequest{_GAP}(?:unexpected|unknown|unspecified) (?:error|exception|failure|condition)",
        r"\bunavailable\b|bad gateway|service (?:exception|error)|\boverloaded\b|maintenance",
        r"服务器?(?:内部|暂时|当前|正|端|发生|出现|连接)?(?:不可用|繁忙|忙|异常|错误|过载|故障|宕机|维护|无响应|未响应)",
        r"系统(?:繁忙|维护|过载)|网关(?:错误|异常)",
    ),
    # What passes by itself, in so many words.
    _row(
        _T,
        r"\b(?:re)?try (?:\w+ ){0,4}?(?:later|shortly|in (?:a|an|some|\d)|after (?:a|an|some|\d))",
        r"(?:^|[.!;,] )(?:please )?(?:retry|try) (?:(?:the|your|this) )?(?:request|operation|call)"
        r"(?: again)?(?:\.|!|$)",
        rf"\bwait\b{_GAP}\b(?:re)?try",
        r"temporarily|temporary (?:\w+ )?(?:failure|error|condition|issue|problem|outage)|\btransient\b",
        r"exponential back ?off",
        r"(?:can't|cannot|could not|couldn't|unable to) (?:\w+ ){1,4}(?:right now|at this time|at the moment)",
        r"being (?:modified|updated|changed|processed|used) by (?:another|an?) ",
        r"deadlock|(?:database|table) is locked|lock wait|could not obtain lock|serialization failure",
        r"could not serialize",
        r"resource (?:is )?(?:busy|temporarily)|not (?:yet )?ready",
        r"still (?:loading|starting|initiali[sz]ing|warming)",
        r"(?:worker|node|process) (?:has |was |unexpectedly )?(?:died|lost|killed)",
        r"稍后|稍候|过一会|请重试|暂时(?:不|无|性)|暂不可用|临时性?(?:错误|故障|不可用)|死锁|锁等待",
        r"正在(?:启动|加载|初始化|重启)|尚未就绪|未就绪|节点.{0,4}(?:丢失|失联)",
    ),
    # The tool itself.
    _row(
        _O,
        r"segmentation fault|core dumped|stack overflow|out of memory|\bpanic\b|assertion (?:failed|error)",
        r"\bnot (?:yet )?implemented\b|unimplemented|unhandled exception|\bcrashed\b",
        r"(?:invalid|malformed|unexpected|unparsable|empty) (?:\w+ )?(?:response|reply|output)\b",
        r"(?:failed|unable|could not|cannot|can't) (?:to )?(?:parse|decode|read) (?:the )?(?:\w+ )?"
        r"(?:response|reply|output)",
        r"(?:工具|插件|脚本|程序)(?:执行|内部|运行|调用|自身)?(?:错误|异常|崩溃|失败|出错)|内存(?:不足|溢出)",
        r"崩溃|未实现|(?:响应|返回|结果).{0,6}(?:解析|格式)",
        r"解析(?:响应|返回|结果)",
    ),
    # Too much of something that the call decides.
    _row(
        _P,
        r"too (?:large|long|big|small|short|many)\b|(?:context|input|payload|file|content) (?:length|size)",
        rf"\b(?:size|length|characters|bytes|tokens)\b{_GAP}exceed",
        rf"exceed\w*{_GAP}\b(?:size|length|characters|bytes|tokens)\b",
    ),
    # Other limits.
    _row(
        _X,
        rf"\b(?:limits?|maximum)\b{_GAP}(?:exceeded|reached)",
        rf"\b(?:exceed\w*|reach\w*)\b{_GAP}\b(?:limits?|maximum|allowed|permitted)\b|more than (?:the )?allowed",
        r"达到.{0,8}上限|超(?:出|过).{0,8}(?:上限|限制)",
    ),
    # The request.
    _row(
        _P,
        rf"{_NOT_THERE}|no such|non ?existent|(?:can(?:not|'t)|could(?: not|n't)|unable to) (?:be )?(?:find|locate)",
        r"(?:not|n't) refer to an existing",
        r"\binvalid\b|(?:not|n't) (?:a )?valid\b|\billegal\b|\bmalformed\b|\bincorrect\b",
        r"\bbad (?:request|input|value)",
        r"\bmust (?:not |have |be |contain |match )|should be|\bexpected \w|\brequired\b",
        r"(?:not|n't) (?:\w+ )?(?:match|satisf)",
        r"unsupported|(?:not|n't) (?:\w+ )?(?:support|compatible|allowed)|unrecogni[sz]ed",
        r"\bunexpected (?:keyword|arg|param)",
        r"concurrent (?:modification|update|write|access)|conditional check",
        r"out of range|out of bounds|\balready\b|duplicate|conflict|syntax error|parse error",
        r"(?:fail|fails|failed) to (?:satisfy|meet|match|comply)|(?:not|n't) (?:comply|conform|meet)|constraint",
        r"(?:not|n't) in (?:a|an|the) (?:\w+ )?state|inconsistent state|state\b[^.]{0,60}?(?:not|n't) allow",
        r"(?:can't|cannot) be (?:negative|empty|null|none|zero|blank|less|more|greater)|not registered",
        r"incompatible|\bincorrectly|provide a valid|semantic error|unprocessable|division by zero",
        r"more than once|\bin use\b",
        r"\busage:|(?:unable to|can't be|cannot be|could not be) parse",
        r"(?:fail|failed|fails) (?:\w+ )?validation|validation (?:has )?(?:error|failed)",
        r"不存在|未找到|找不到|没有找到|无效|非法|不合法|不正确|有误",
        r"(?:格式|参数|类型|语法).{0,4}(?:错误|异常)|缺少|必填|必须|不能为空",
        r"不支持|已存在|重复|冲突|超出范围|越界|过长|过大|不匹配|不符合|校验失败|验证失败|参数",
    ),
)

# A class name at the head of a line, as tracebacks and many programs print it.
_PRINTED_TYPE = re.compile(
    r"^[ \t]{0,8}([A-Za-z_][\w.]{0,120}(?:Error|Exception|Timeout|Expired))\b(?=:|[ \t]*$)", re.M
)
_PRINTED_STATUS = re.compile(
    r"(?:\bhttp(?:/[0-9.]{1,3})?|\bstatus|\berror|\bresponse| ?状态码)(?: is)?[ :\uff1a=(]{0,3}"
    r"(?:status|error)?[ :=(]{0,3}(?:code)?[ :=(\"']{0,3}([45][0-9]{2})\b"
    r"|^([45][0-9]{2}) (?:client error|server error|response)",
    re.ASCII,
)


def _by_message(message: str) -> Category | None:
    """The category that a message speaks of: a class or a status printed in it, else its words."""
    words = _words(message)
    printed = _PRINTED_TYPE.findall(message)
    status = _PRINTED_STATUS.search(words)
    return (
        _by_types(printed[-1:])
        or (_by_status(int(status[1] or status[2]), "", message) if status else None)
        or _first(_TEXTS, words)
    )


# --- The order -------------------------------------------------------------------------------------------------------


def _by_typed_evidence(seen: Evidence) -> Category | None:
    """What needs no reading of texts; the more precise statement first."""
    code = seen.code or ""
    if seen.suggested:
        return _P  # A tool that proposes other arguments says that these were wrong.
    if code != "SUSPECT_OUTPUT" and (own := codes.category_of(code)):
        return own
    return (
        _by_status(seen.status, code, seen.message)
        or _CODES.get(code)
        or _by_types(seen.types)
        or (_EXIT_CODES.get(seen.exit_code) if seen.exit_code else None)
    )


def _by_patterns(seen: Evidence, patterns: Mapping[Category, Sequence[str]]) -> Category | None:
    """The first category one of whose patterns is found in the code, the class or the message."""
    texts = (seen.code or "", *seen.types[:1], seen.message)
    for category, wanted in patterns.items():
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            if any(map(_wanted(pattern), texts)):
                return category
    return None


@lru_cache(maxsize=512)
def _wanted(pattern: str) -> Callable[[str], bool]:
    """A user's pattern; one that is not a regular expression is looked for as it stands."""
    try:
        return search(pattern, ignore_case=True)
    except BadPattern:
        return lambda text: pattern.casefold() in text.casefold()


def _by_leaning(seen: Evidence) -> Category | None:
    """What is likely when nothing else was said."""
    if seen.exit_code:
        return _O
    leaning = next((found for name in seen.types if (found := _look_up(_LEANINGS, name))), None)
    return leaning or codes.category_of(seen.code or "")
