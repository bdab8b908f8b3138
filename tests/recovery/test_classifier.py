"""Which category an error belongs to (H1, H2), shown on the errors of real programs."""

from __future__ import annotations

import json
import sqlite3
import ssl
import subprocess
import urllib.error
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerail import codes
from rerail.codes import Category
from rerail.recovery.classifier import Evidence, classify

T, P, O, D = Category.TRANSIENT, Category.PARAMETER, Category.TOOL, Category.DEPENDENCY  # noqa: E741
S, X, U = Category.DECOMPOSITION, Category.PERMANENT, Category.UNKNOWN


def mro(kind: type[BaseException]) -> tuple[str, ...]:
    """Class names as the executor reports them."""
    classes = [c for c in kind.__mro__ if issubclass(c, BaseException)]
    return tuple(c.__qualname__ if c.__module__ == "builtins" else f"{c.__module__}.{c.__qualname__}" for c in classes)


# --- typed evidence


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (400, P), (401, X), (402, X), (403, X), (404, P), (405, P), (407, X), (408, T), (409, P), (410, X), (412, P),
        (413, P), (422, P), (423, T), (424, D), (425, T), (429, T), (451, X), (500, T), (501, O), (502, T), (503, T),
        (504, T), (505, O), (529, T), (599, T), (200, U), (302, U), (0, U), (600, U), (-1, U), (10**9, U),
    ],
)  # fmt: skip
def test_statuses(status: int, category: Category) -> None:
    """H2: 429, 408 and 5xx are transient, 401 and 403 permanent, other 4xx about the request; others say nothing."""
    assert classify(Evidence(status=status)) is category


@pytest.mark.parametrize("message", ["timed out", "network error", "rate limiting is not the cause", "系统繁忙"])
def test_a_status_beats_the_text(message: str) -> None:
    """H2: statuses first, texts last."""
    assert classify(Evidence(message=message, status=401)) is X
    assert classify(Evidence(message=message, status=404)) is P
    assert classify(Evidence(message="invalid argument", status=503)) is T


@pytest.mark.parametrize(
    ("evidence", "category"),
    [
        (Evidence(status=400, code="ThrottlingException"), T),
        (Evidence(status=403, code="userRateLimitExceeded"), T),
        (Evidence(status=403, message="API rate limit exceeded for user ID 1."), T),
        (Evidence(status=403, code="quotaExceeded"), X),
        (Evidence(status=429, code="insufficient_quota"), X),
        (Evidence(status=429, message="{'type': 'insufficient_quota'}"), X),
        (Evidence(status=429, message="账户余额不足"), X),
        (Evidence(status=429, message="You exceeded your current quota. Please retry in 13s."), T),
        (Evidence(status=429, code="RESOURCE_EXHAUSTED"), T),
        (Evidence(status=404, code="model_not_found"), X),
        (Evidence(status=404, message="The model `gpt-9` does not exist"), X),
    ],
)
def test_rate_limits_and_spent_quotas_under_any_status(evidence: Evidence, category: Category) -> None:
    """H1, H2: exhausted quotas and missing models are permanent, rate limits transient, under any status."""
    assert classify(evidence) is category


@pytest.mark.parametrize(
    ("kind", "category"),
    [
        (ValueError, P), (TypeError, P), (KeyError, P), (IndexError, P), (UnicodeDecodeError, P),
        (ZeroDivisionError, P), (json.JSONDecodeError, O), (FileNotFoundError, P), (FileExistsError, P),
        (IsADirectoryError, P),
        (PermissionError, X), (ImportError, X), (ModuleNotFoundError, X), (ssl.SSLCertVerificationError, X),
        (TimeoutError, T), (ConnectionError, T), (ConnectionRefusedError, T), (BrokenPipeError, T),
        (subprocess.TimeoutExpired, T), (urllib.error.URLError, T), (ssl.SSLEOFError, T), (sqlite3.OperationalError, T),
        (sqlite3.IntegrityError, P), (subprocess.CalledProcessError, O), (NotImplementedError, O), (MemoryError, O),
        (RecursionError, O), (AttributeError, O), (AssertionError, O), (SyntaxError, O),
        (OSError, U), (RuntimeError, U), (Exception, U), (urllib.error.HTTPError, U),
    ],
)  # fmt: skip
def test_classes_of_the_standard_library(kind: type[BaseException], category: Category) -> None:
    """H2: ValueError and TypeError are parameter, PermissionError is permanent, time and network are transient."""
    assert classify(Evidence(types=mro(kind))) is category


@pytest.mark.parametrize(
    ("types", "category"),
    [
        ("httpx.ConnectTimeout httpx.TimeoutException httpx.TransportError httpx.RequestError httpx.HTTPError", T),
        ("httpx2.ReadError httpx2.NetworkError httpx2.TransportError httpx2.RequestError", T),
        ("httpx.InvalidURL", P),
        ("httpx.HTTPStatusError httpx.HTTPError", U),
        ("requests.exceptions.ConnectionError requests.exceptions.RequestException OSError", T),
        ("requests.exceptions.MissingSchema requests.exceptions.RequestException ValueError OSError", P),
        ("requests.exceptions.JSONDecodeError json.decoder.JSONDecodeError ValueError", O),
        ("simplejson.errors.JSONDecodeError ValueError", O),
        ("aiohttp.client_exceptions.ServerDisconnectedError aiohttp.client_exceptions.ClientError", T),
        ("aiohttp.client_exceptions.ClientConnectorCertificateError ssl.CertificateError ValueError", X),
        ("aiohttp.client_exceptions.ClientError", U),
        ("urllib3.exceptions.MaxRetryError urllib3.exceptions.HTTPError", T),
        ("psycopg.errors.DeadlockDetected psycopg.OperationalError psycopg.DatabaseError", T),
        ("psycopg.errors.SyntaxError psycopg.ProgrammingError", P),
        ("psycopg.errors.InsufficientPrivilege psycopg.ProgrammingError", X),
        ("psycopg.errors.UniqueViolation psycopg.IntegrityError", P),
        ("redis.exceptions.AuthenticationError redis.exceptions.ConnectionError redis.exceptions.RedisError", X),
        ("redis.exceptions.TimeoutError redis.exceptions.RedisError", T),
        ("botocore.exceptions.EndpointConnectionError botocore.exceptions.ConnectionError", T),
        ("botocore.exceptions.NoCredentialsError botocore.exceptions.BotoCoreError", X),
        ("botocore.exceptions.ParamValidationError botocore.exceptions.BotoCoreError", P),
        ("botocore.errorfactory.ThrottlingException botocore.exceptions.ClientError", T),
        ("openai.RateLimitError openai.APIStatusError openai.OpenAIError", T),
        ("ray.exceptions.RayTaskError(ValueError) ray.exceptions.RayTaskError ValueError", P),
        ("ray.exceptions.WorkerCrashedError ray.exceptions.RayError", T),
        ("shop.PaymentServiceError", U),
        ("shop.StockTimeoutError", T),
        ("shop.CustomerNotFound", P),
        ("shop.ConfigError", X),
    ],
)
def test_classes_of_other_packages(types: str, category: Category) -> None:
    """H2: foreign exceptions are known by class name, the most derived class first."""
    assert classify(Evidence(types=(*types.split(), "Exception"))) is category


@pytest.mark.parametrize(
    ("evidence", "category"),
    [
        (Evidence(message="配置文件不存在: a.toml", types=("FileNotFoundError", "OSError")), X),
        (Evidence(message="input file missing: a.csv", types=("FileNotFoundError", "OSError")), D),
        (Evidence(message="no such table: users", types=("sqlite3.OperationalError",)), P),
        (Evidence(message='password authentication failed for user "x"', types=("psycopg.OperationalError",)), X),
        (Evidence(message="certificate verify failed", types=("requests.exceptions.SSLError", "ConnectionError")), X),
        (Evidence(message="'timeout'", types=("KeyError", "LookupError")), P),
        (Evidence(message="connection timed out", types=("ValueError",)), P),
    ],
)
def test_classes_that_leave_it_to_the_text(evidence: Evidence, category: Category) -> None:
    """H2: a class that says where but not why lets the text decide; a telling one does not."""
    assert classify(evidence) is category


@pytest.mark.parametrize(
    ("exit_code", "message", "category"),
    [
        (124, "", T), (126, "", X), (127, "sh: 1: jq: not found", X), (137, "invalid input", T), (143, "", T),
        (-9, "", T), (-15, "", T), (1, "", O), (2, "usage: prog [-h] file", P), (1, "Permission denied", X),
        (1, "curl: (6) Could not resolve host: a.example", T), (139, "", O), (1, "something odd", O), (0, "", U),
        (1, "Traceback (most recent call last):\n  File 'x'\nModuleNotFoundError: No module named 'y'", X),
        (1, "urllib.error.HTTPError: something odd", O),
    ],
)  # fmt: skip
def test_exit_codes(exit_code: int, message: str, category: Category) -> None:
    """H2: exit codes of shells and signals decide, others leave it to the text, else it is the tool."""
    assert classify(Evidence(message=message, code="EXIT_STATUS", exit_code=exit_code)) is category


def test_own_codes() -> None:
    """H2: a code of ours carries its category; SUSPECT_OUTPUT goes by its text, else tool."""
    for code in codes.ALL.values():
        if code.category and code.name != "SUSPECT_OUTPUT":
            assert (
                classify(Evidence(message="无效", code=code.name, status=418, types=("ValueError",))) is code.category
            )
    assert classify(Evidence(code="CHECK_FAILED")) is O
    assert classify(Evidence(code="VERIFY_FAILED")) is O
    assert classify(Evidence(code="SUSPECT_OUTPUT", message='member "error" is set: "user not found"')) is P
    assert classify(Evidence(code="SUSPECT_OUTPUT", message='member "status" is the error status 503')) is T
    assert classify(Evidence(code="SUSPECT_OUTPUT", message='member "ok" is false')) is O
    assert classify(Evidence(code="TOOL_FAILED", message="timed out")) is T
    assert classify(Evidence(code="TOOL_FAILED")) is U


def test_suggest_is_parameter() -> None:
    """H2: an error that carries other arguments is about the arguments, whatever else it says."""
    evidence = Evidence(message="timed out", code="TIMEOUT", types=("TimeoutError",), status=503, suggested=True)
    assert classify(evidence) is P


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("ECONNREFUSED", T), ("ETIMEDOUT", T), ("EAI_AGAIN", T), ("EACCES", X), ("ENOSPC", X), ("ENOENT", P),
        ("UNAVAILABLE", T), ("DEADLINE_EXCEEDED", T), ("PERMISSION_DENIED", X), ("INVALID_ARGUMENT", P),
        ("UNIMPLEMENTED", O), ("-32602", P), ("-32601", X), ("-32603", O), ("429", T), ("404", P), ("1001", U),
        ("ThrottlingException", T), ("TooManyRequestsException", T), ("InternalServerError", T), ("SlowDown", T),
        ("ServiceUnavailable", T), ("rate_limit_exceeded", T), ("ConcurrentExecutionsLimitExceeded", T),
        ("overloaded_error", T), ("RequestTimeout", T), ("RetryableConflict", T), ("backendError", T),
        ("AccessDenied", X), ("invalid_api_key", X), ("ExpiredToken", X), ("ServiceQuotaExceeded", X),
        ("insufficient-funds", X), ("ConfigurationError", X), ("LimitExceeded", X),
        ("NoSuchKey", P), ("ValidationException", P), ("InvalidNextToken", P), ("AlreadyExists", P),
        ("context_length_exceeded", P), ("UnknownResource", P), ("ConflictException", P),
        ("FailedDependency", D), ("MissingPrerequisite", S), ("NotImplemented", O),
        ("UnknownError", U), ("UNKNOWN_ERROR", U), ("E_FAIL", U), ("", U),
    ],
)  # fmt: skip
def test_codes(code: str, category: Category) -> None:
    """H2: codes are taken apart into words, whether CamelCase, SNAKE_CASE or kebab-case."""
    assert classify(Evidence(code=code)) is category


def test_a_vague_code_leaves_it_to_the_message() -> None:
    """H2: "limit exceeded" does not say which limit; the message does."""
    assert classify(Evidence(code="LimitExceeded", message="The request exceeded the rate limit.")) is T
    assert classify(Evidence(code="LimitExceeded", message="You may own at most five gardens.")) is X
    assert classify(Evidence(code="ServiceException", message="The name is not valid.")) is P
    assert classify(Evidence(code="ServiceException")) is T


# --- texts

ENGLISH = [
    (T, "connect ETIMEDOUT 10.0.0.1:443"),
    (T, "HTTPSConnectionPool(host='a.example', port=443): Read timed out. (read timeout=30)"),
    (T, "Error code: 429 - {'error': {'message': 'Rate limit reached for requests'}}"),
    (T, "Error code: 529 - {'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}"),
    (T, "503 Service Unavailable"),
    (T, "<html><head><title>502 Bad Gateway</title>"),
    (T, "500 Server Error: Internal Server Error for url: https://a.example"),
    (T, "upstream connect error or disconnect/reset before headers"),
    (T, "could not connect to server: Connection refused"),
    (T, "ERROR: could not serialize access due to concurrent update"),
    (T, "database is locked"),
    (T, "deadlock detected"),
    (T, "Lost connection to MySQL server during query"),
    (T, "context deadline exceeded"),
    (T, "dial tcp 127.0.0.1:5432: connect: connection refused"),
    (T, "getaddrinfo ENOTFOUND a.example"),
    (T, "Temporary failure in name resolution"),
    (T, "no internet access"),
    (T, "Model is still loading"),
    (T, "Server is busy, please try again later"),
    (T, "Please retry in 12.5s"),
    (T, "We can’t process your request right now."),
    (T, "The worker died unexpectedly"),
    (T, "An error occurred (ThrottlingException) when calling the PutItem operation: Rate exceeded"),
    (T, "An unexpected error occurred while processing the request."),
    (T, "Circuit breaker is open"),
    (X, "Error code: 401 - {'error': {'message': 'Incorrect API key provided: sk-x.'}}"),
    (X, "Error code: 429 - {'error': {'code': 'insufficient_quota'}}"),
    (X, "Your credit balance is too low"),
    (X, "Error code: 404 - {'error': {'message': 'The model `gpt-9` does not exist'}}"),
    (X, "Access denied for user 'root'@'localhost'"),
    (X, "fatal: Authentication failed for 'https://a.example/x.git/'"),
    (X, "You do not have permission to access this channel"),
    (X, "Token expired"),
    (X, "No API key found"),
    (X, "OPENAI_API_KEY environment variable is not set"),
    (X, "Config file not found: /etc/x.toml"),
    (X, "bash: foo: command not found"),
    (X, "[Errno 28] No space left on device"),
    (X, "x509: certificate signed by unknown authority"),
    (X, "Insufficient funds"),
    (X, "Your account has been suspended"),
    (X, "The monthly quota has been exhausted"),
    (X, "The requested operation is not supported for this resource"),
    (X, "This action is not currently supported in your region."),
    (X, "Please sign in with an account that may do this"),
    (X, "Session expired. Please log in again."),
    (X, "The user is not authenticated"),
    (P, "404 Client Error: Not Found for url: https://a.example"),
    (P, 'relation "users" does not exist'),
    (P, "duplicate key value violates unique constraint"),
    (P, 'near "SELEC": syntax error'),
    (P, "ls: cannot access 'x': No such file or directory"),
    (P, "error: unrecognized arguments: --foo"),
    (P, "Missing required parameter: city"),
    (P, "'units' must be one of ['metric', 'imperial']"),
    (P, "1 validation error for UserModel\ncity\n  Field required [type=missing, input_value={}]"),
    (P, "This model's maximum context length is 8192 tokens."),
    (P, "Fuel amount cannot be negative."),
    (P, "division by zero"),
    (P, "KeyError: 'timeout'"),
    # What is not supported is something that was given.
    (P, "The operation 'modulo' is not supported"),
    (P, "This operation is not supported with the given arguments"),
    (P, "The requested action is not supported for this file type"),
    (P, "The currency XYZ is not supported"),
    # Words of other categories that mean the request here.
    (P, "Invalid timeout value: -1"),
    (P, "timeout must be a positive number"),
    (P, "got an unexpected keyword argument 'timeout'"),
    (P, "Temporary file not found"),
    (P, "Invalid billing address"),
    (P, "Unknown service name: s4"),
    (P, "The next token is not valid."),
    (D, "Input file missing: out/a.csv"),
    (D, "Upstream data is empty"),
    (D, "artifact 'report' not found"),
    (D, "the output of step load is missing"),
    (S, "missing prerequisite step: load data"),
    (S, "Prerequisite data is not available"),
    (S, "You must call load_data first"),
    (S, "User not authenticated. Please log in to create a ticket."),
    (S, "User not authenticated. Please authenticate before posting."),
    (S, "No user is currently logged in."),
    (S, "You are not signed in"),
    (O, "Segmentation fault (core dumped)"),
    (O, "java.lang.OutOfMemoryError: Java heap space"),
    (O, "Unexpected response from server"),
    (O, "not implemented"),
    (U, "Something went wrong"),
    (U, "Unknown error"),
    (U, "An unexpected error occurred"),
    (U, "Process exited with code 1"),
    (U, "Failed"),
    (U, ""),
]

CHINESE = [
    (P, "数据源不存在: ds_invalid"),
    (T, "工具服务连接超时"),
    (S, "缺少必要的前置数据"),
    (X, "配置文件不存在"),
    (X, "Playbook不存在"),
    (X, "API密钥无效"),
    (X, "模型不存在"),
    (X, "权限不足"),
    (T, "AI 限流"),
    (T, "网络错误"),
    (T, "API 超时"),
    (T, "网络超时"),
    (T, "API限流"),
    (P, "文件不存在"),
    (D, "无数据"),
    (D, "无文件"),
    (T, "请求过于频繁，请稍后再试"),
    (T, "服务器内部错误"),
    (T, "服务暂时不可用"),
    (T, "系统繁忙"),
    (T, "无法连接到服务器"),
    (T, "连接被拒绝"),
    (T, "网络波动"),
    (T, "网关超时"),
    (T, "HTTP 状态码：503"),
    (X, "账户余额不足"),
    (X, "配额已用完"),
    (X, "没有访问权限"),
    (X, "登录已过期"),
    (X, "缺少API密钥"),
    (X, "模型「gpt-9」不存在"),
    (P, "参数错误：city 不能为空"),
    (P, "日期格式不正确"),
    (P, "不支持的文件类型"),
    (P, "用户已存在"),
    (P, "状态码：422"),
    (P, "工具参数错误"),
    (P, "临时文件不存在"),
    (P, "服务参数错误"),
    (P, "超时时间必须大于 0"),
    (D, "上游步骤输出缺失"),
    (D, "缺少输入文件"),
    (S, "前置步骤未完成"),
    (S, "请先登录"),
    (O, "工具执行异常"),
    (O, "内存不足"),
    (U, "未知错误"),
    (U, "执行失败"),
]


@pytest.mark.parametrize(("category", "message"), ENGLISH)
def test_english_texts(category: Category, message: str) -> None:
    """H1, H2: what programs print is understood; what says nothing stays unknown."""
    assert classify(Evidence(message=message)) is category


@pytest.mark.parametrize(("category", "message"), CHINESE)
def test_chinese_texts(category: Category, message: str) -> None:
    """H1, H2: Chinese texts are understood as well, those of the source documents among them."""
    assert classify(Evidence(message=message)) is category


# --- the user's patterns


def test_the_users_patterns_beat_ours_but_not_typed_evidence() -> None:
    """H2: patterns are extensible in config; they come before our texts and after typed evidence."""
    patterns = {T: ["库存.{0,4}锁定", r"\bE77\d"], X: ["not found"]}
    assert classify(Evidence(message="库存已被锁定"), patterns) is T
    assert classify(Evidence(message="failed with e771"), patterns) is T
    assert classify(Evidence(code="E772"), patterns) is T
    assert classify(Evidence(types=("shop.E773",)), patterns) is T
    assert classify(Evidence(message="user NOT FOUND"), patterns) is X
    assert classify(Evidence(message="user not found", status=404), patterns) is P
    assert classify(Evidence(message="user not found", types=("KeyError",)), patterns) is P
    assert classify(Evidence(message="user not found", code="ARGS_INVALID"), patterns) is P


def test_the_first_category_whose_pattern_is_found_decides() -> None:
    """H2: the order of the settings is the order of the search."""
    assert classify(Evidence(message="a b"), {T: ["b"], X: ["a"]}) is T
    assert classify(Evidence(message="a b"), {X: ["a"], T: ["b"]}) is X


def test_a_pattern_that_is_no_regular_expression_is_plain_text() -> None:
    """H2: a slip in the settings does not stop a run in the middle of healing."""
    assert classify(Evidence(message="odd (case"), {D: ["odd (CASE"]}) is D


# --- survival


@pytest.mark.parametrize("message", [None, b"", 7, 1.5, ["x"], {"a": 1}, object(), True])
def test_wrong_types_are_survived(message: Any) -> None:
    """H2: None and everything else that is no text is survived."""
    assert classify(Evidence(message=message)) in Category
    assert classify(Evidence(message, message, message, message, message, False)) in Category


def test_bytes_and_numbers_as_text_are_read() -> None:
    """H2: bytes are read like text, statuses and codes also from the wrong type."""
    odd: Any = bytearray("网络错误".encode())
    assert classify(Evidence(message=odd)) is T
    odd = b"\xff\xfe connection refused"
    assert classify(Evidence(message=odd)) is T
    odd = "503"
    assert classify(Evidence(status=odd)) is T
    odd = 403
    assert classify(Evidence(code=odd)) is X
    odd = "TimeoutError"
    assert classify(Evidence(types=odd)) is T


@pytest.mark.parametrize("blank", ["x", "x ", "exceed", "exceed ", "model a ", "\n", "超", "(((", "internal a "])
def test_huge_messages_are_survived(blank: str) -> None:
    """H2: of ten megabytes the two ends are read, where the cause stands."""
    filler = blank * (10_000_000 // len(blank))
    assert classify(Evidence(message=f"connection refused. {filler}")) is T
    assert classify(Evidence(message=f"{filler}. connection refused")) in Category
    assert classify(Evidence(message=f"{'x' * 10_000_000}. connection refused")) is T
    assert classify(Evidence(message=filler, code=filler, types=(filler,) * 1000)) in Category


def test_the_middle_of_a_huge_message_is_not_read() -> None:
    """H2: the work does not grow with the message."""
    filler = "x" * 3000
    assert classify(Evidence(message=f"{filler} connection refused {filler}")) is U


anything = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text()))


@given(message=anything, code=anything, types=anything, status=anything, exit_code=anything, suggested=st.booleans())
def test_no_evidence_breaks_it(
    message: Any, code: Any, types: Any, status: Any, exit_code: Any, suggested: bool
) -> None:
    """H2: whatever is reported, there is a category, and the same one every time."""
    evidence = Evidence(message, code, types, status, exit_code, suggested)
    assert classify(evidence) is classify(evidence)
    assert classify(evidence) in Category


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of re, about patterns such as "[["
@given(message=st.text(), pattern=st.text())
def test_no_pattern_breaks_it(message: str, pattern: str) -> None:
    """H2: a user's pattern of any kind gives a category."""
    assert classify(Evidence(message=message), {O: [pattern]}) in Category


@pytest.mark.parametrize("kind", [str, lambda text: text.encode(), lambda text: bytearray(text.encode())])
def test_of_a_long_message_the_two_ends_are_read(kind: Any) -> None:
    """H2: two thousand and forty-eight signs of each; all of it, as long as it is no longer than both."""
    said = "connection refused"
    for before, after, seen in (
        (0, 9_000, True), (9_000, 0, True), (2_048 - len(said), 9_000, True), (2_049 - len(said), 9_000, False),
        (9_000, 2_048 - len(said), True), (9_000, 2_049 - len(said), False), (2_039, 2_039, True),
        (2_040, 2_040, False),
    ):  # fmt: skip
        message = kind("." * before + said + "." * after)
        assert (classify(Evidence(message=message)) is Category.TRANSIENT) is seen, (before, after)
