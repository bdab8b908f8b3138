"""Outputs that are called a success and look like an error (X9)."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.classifier.measure import envelopes
from hypothesis import given
from hypothesis import strategies as st

from rerail.codes import Category
from rerail.recovery.classifier import Evidence, classify
from rerail.recovery.disguised_errors import suspect

# --- objects


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ({"error": "not found"}, 'member "error" is set: "not found"'),
        ({"result": 1, "errors": ["bad date"]}, 'member "errors" is set: "bad date"'),
        ({"errors": [1, 2]}, 'member "errors" is set: 2 entries'),
        ({"exception": "ValueError"}, 'member "exception" is set: "ValueError"'),
        ({"error": True}, 'member "error" is set: true'),
        ({"error": 5}, 'member "error" is set: 5'),
        ({"error": {"code": 7, "message": "no luck"}}, 'member "error" is set: "no luck"'),
        ({"error": {"code": 7}}, 'member "error" is set: an object with 1 members'),
        ({"errors": [{"message": "no luck"}]}, 'member "errors" is set: "no luck"'),
        ({"error": "a" * 500}, f'member "error" is set: "{"a" * 200}…"'),
        ({"error": 10**5000}, 'member "error" is set: a value of type int'),
        ({"status": 404}, 'member "status" is the error status 404'),
        ({"status_code": 503, "message": "busy"}, 'member "status_code" is the error status 503: "busy"'),
        ({"statusCode": 400}, 'member "statusCode" is the error status 400'),
        ({"status": "599"}, 'member "status" is the error status 599'),
        ({"code": 500, "msg": "服务器错误", "data": None}, 'member "code" is the error status 500: "服务器错误"'),
        ({"ok": False}, 'member "ok" is false'),
        ({"ok": False, "reason": "channel_not_found"}, 'member "ok" is false: "channel_not_found"'),
        ({"success": False, "message": "no"}, 'member "success" is false: "no"'),
        ({"success": 0}, 'member "success" is false'),
        ({"isError": True}, 'member "isError" is true'),
        ({"is_error": True}, 'member "is_error" is true'),
        ({"status": "error", "message": "no luck"}, 'member "status" is "error": "no luck"'),
        ({"status": "fail", "data": {}, "message": "no luck"}, 'member "status" is "fail": "no luck"'),
    ],
)
def test_objects_that_are_errors(output: dict[str, Any], seen: str) -> None:
    """X9: an error member that is set, an error status, `ok: false` and their like are not believed."""
    assert suspect(output) == seen


@pytest.mark.parametrize(
    "output",
    [
        {"error": None},
        {"error": False},
        {"error": 0},
        {"error": 0.0},
        {"error": ""},
        {"error": " "},
        {"errors": []},
        {"errors": {}},
        {"error": "null"},
        {"error": "None"},
        {"error": "no error"},
        {"error_rate": 0.2, "error_count": 3},
        {"status": 200},
        {"status": 399},
        {"status": 600},
        {"status": True},
        {"status": "ok"},
        {"status": "500 units left"},
        {"job": 7, "status": "failed"},
        {"id": 7, "status": "error", "message": "disk full"},
        {"status": "error"},
        {"code": 404},
        {"code": 450, "name": "area"},
        {"code": 0, "msg": "ok"},
        {"ok": True},
        {"ok": None},
        {"ok": "false"},
        {"success": True},
        {"success": 1},
        {"success": None},
        {"isError": False},
        {"isError": None},
        {"result": {"error": "deep"}},
        {"rows": [{"error": "deep"}]},
        {"login_status": False},
        {"message": "an error occurred in chapter two"},
        {},
        [],
        [{"error": "not the top level"}],
        [404],
        404,
        False,
        None,
        b"Error: x",
    ],
)
def test_objects_that_are_results(output: object) -> None:
    """X9: null, false, zero and empty are no error, and nothing below the top level is looked at."""
    assert suspect(output) is None


# --- texts

ERRORS = [
    "Error: file not found",
    "ERROR: disk full",
    "error : bad date",
    "Fatal error: out of memory",
    "Exception: no luck",
    "Error: no such file",
    "Error: 404 page not found",
    "错误：无效的参数",
    "错误：没有权限",
    "Failed: connection refused",
    "[ERROR] no luck",
    "An error occurred while saving the file.",
    "Error executing tool search: bad query",
    "错误：文件不存在",
    "错误: 参数无效",
    "请求失败：超时",
    "系统异常: 空指针",
    "ValueError: bad date",
    "requests.exceptions.ConnectionError('refused')",
    "KeyError",
    "Traceback (most recent call last):\n  File 'a.py', line 1\nValueError: bad",
    "HTTP 503 Service Unavailable",
    "HTTP/1.1 500",
    "HTTP Error 404: Not Found",
    "404 Not Found",
    "Error 500",
    "502 Bad Gateway\n",
    "503 Server Error: Service Unavailable for url: https://a.example",
    "<html>\n<head><title>502 Bad Gateway</title></head>\n<body>nginx</body></html>",
    "<!DOCTYPE html><html lang='en'><title>404 Not Found</title>",
    "Failed to connect to the database.",
    "Unable to open file: a.txt",
    "Could not find module x",
    "Permission denied",
    "Connection refused",
    "Rate limit exceeded.",
    "cat: a.txt: No such file or directory",
    '{"error": "not found"}',
    '{ "errors": [{"message": "x"}] }',
    '{"success": false, "message": "x"}',
    '{"isError": true}',
]

RESULTS = [
    "",
    "ok",
    "Error handling in Python is done with try and except.",
    "Errors: 0",
    "Error: none",
    "Error: 0",
    "Error: 0.",
    "Exception: N/A",
    "Failed: 0, passed: 12",
    "Failed: 3, passed: 9",
    "失败: 0",
    "失败：3，成功：9",
    "错误：无",
    "The request failed with an error: the file was not found.",
    "The log says: Error: disk full",
    "No error occurred.",
    "404 people came",
    "500 units were sold",
    "HTTP is a protocol",
    "HTTP 200 OK",
    "ValueErrors are raised for bad values",
    "Failed to launch in 2019, the product came back. It sold well.",
    "Could not be better!",
    "Cannot wait",
    "Not found",
    "错误处理是编程的重要部分",
    "异常",
    "Permission denied people often complain.",
    "INFO start\nError: disk full\nINFO end",
    "Error: a first line\nand a report of many more lines\nof text",
    "<html><head><title>404 ways to cook</title>",
    "<html><head><title>My page</title>",
    '{"error": null, "result": 1}',
    '{"error": "", "result": 1}',
    '{"errors": [], "result": 1}',
    '{"result": 1, "note": "error"}',
    '{"success": true}',
    "Error: " + "word " * 100,
    "Traceback (most recent call last):" + "x" * 20_000,
]


@pytest.mark.parametrize("text", ERRORS)
def test_texts_that_are_nothing_but_an_error(text: str) -> None:
    """X9: a text that is nothing but an error message is not believed, and is repeated."""
    seen = suspect(text)
    assert seen is not None
    assert seen.startswith("the text is an error message: ")
    assert text.strip()[:100] in seen


@pytest.mark.parametrize("text", RESULTS)
def test_texts_that_are_results(text: str) -> None:
    """X9: prose that mentions an error, a report, and a long text are believed."""
    assert suspect(text) is None


@pytest.mark.parametrize(
    ("output", "category"),
    [
        ({"error": "Invalid access token"}, Category.PERMANENT),
        ({"error": "Booking not found"}, Category.PARAMETER),
        ({"error": {"message": "Rate limit exceeded"}}, Category.TRANSIENT),
        ({"status": 503}, Category.TRANSIENT),
        ({"status_code": 403}, Category.PERMANENT),
        ({"code": 500, "msg": "x"}, Category.TRANSIENT),
        ({"ok": False, "message": "缺少必要的前置数据"}, Category.DECOMPOSITION),
        ({"success": False}, Category.TOOL),
        ("HTTP 503 Service Unavailable", Category.TRANSIENT),
        ("错误：数据源不存在", Category.PARAMETER),
    ],
)
def test_what_was_seen_tells_the_category(output: object, category: Category) -> None:
    """X9, H2: SUSPECT_OUTPUT goes by its text, else tool."""
    seen = suspect(output)
    assert seen is not None
    assert classify(Evidence(message=seen, code="SUSPECT_OUTPUT")) is category


# --- survival

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
names = st.sampled_from(
    ["error", "errors", "exception", "status", "status_code", "code", "message", "ok", "success", "isError"]
)
objects = st.dictionaries(names, json_values | st.sampled_from(["error", "fail", 404, "404", 0, "0"]))


@given(json_values | objects | st.binary() | st.dictionaries(st.integers() | st.none(), st.text()))
def test_no_output_breaks_it(output: object) -> None:
    """X9: any output gives a short sentence or None."""
    seen = suspect(output)
    assert seen is None or 0 < len(seen) < 500


@given(objects, json_values)
def test_what_lies_deeper_changes_nothing(output: dict[str, Any], deep: object) -> None:
    """X9: only the top level counts; that there is other data makes a bare number a count, and a code no envelope."""
    around = {"result": output, "rows": [output, deep]}
    assert suspect(around) is None
    counts = any(isinstance(output.get(name), int | float) for name in ("error", "errors", "exception"))
    enveloped = output.get("status") in ("error", "fail") or any("code" in name for name in output)
    assert suspect({**output, "result": deep}) == suspect(output) or counts or enveloped


@pytest.mark.parametrize(
    "output",
    [
        {"code": 50000, "msg": "system busy"}, {"code": 40001, "message": "bad token", "data": None},
        {"errcode": 45009, "errmsg": "reach max api daily quota limit"}, {"errno": -1, "errmsg": "x", "data": {}},
        {"result": {"success": False}}, {"success": 0, "failed": 5}, {"errors": 3}, {"errors": ["a"], "rows": 1},
        {"error": True, "rows": 97}, {"paid": True, "error": "card declined"},
    ],
)  # fmt: skip
def test_x9_an_envelope_that_says_failure_and_brings_nothing(output: Any) -> None:
    """X9: a code that says failure without data, a result that failed, a member for errors that is set."""
    assert suspect(output) is not None


@pytest.mark.parametrize(
    "output",
    [
        {"rows": 97, "errors": 3}, {"code": 0, "msg": "ok"}, {"code": 200, "msg": "ok"}, {"code": 20000, "msg": "ok"},
        {"code": 50000, "msg": "paid", "data": {"id": 1}}, {"errcode": 0, "errmsg": "ok"}, {"code": 50000},
        {"result": {"success": True}}, {"result": {"success": False}, "rows": [1]}, {"country": "DE", "code": 49},
        {"errcode": 3, "rows": [1, 2]},
    ],
)  # fmt: skip
def test_x9_a_count_and_a_code_beside_data_are_results(output: Any) -> None:
    """X9: `errors: 3` beside data is a count."""
    assert suspect(output) is None


@pytest.mark.parametrize(("name", "output"), envelopes()["errors"].items())
def test_x9_errors_as_services_send_them(name: str, output: Any) -> None:
    """X9: an envelope that brings no data and says failure by its code, or by a code and the message beside it."""
    assert suspect(output) is not None, name


@pytest.mark.parametrize(("name", "output"), [*envelopes()["results"].items(), *envelopes()["missed"].items()])
def test_x9_results_that_resemble_them_and_errors_that_say_too_little(name: str, output: Any) -> None:
    """X9: both are believed; docs/classifier.md names the latter."""
    assert suspect(output) is None, name


@pytest.mark.parametrize(
    "output",
    [
        {"infocode": "10000", "info": "OK", "status": "1"}, {"errcode": "", "errmsg": ""}, {"code": 1.5, "msg": "bad"},
        {"alipay_x_response": {"code": "40004", "msg": "no", "trade": 7}, "sign": "x"},
        {"data": {"videos": []}, "error": {"code": "ok", "message": "", "log_id": "x"}},  # TikTok
        {"status": "built", "error": {"message": None}},  # GitHub
        {"status": "failed", "message": "card declined"}, {"status": "open", "message": "Error 500 when I log in"},
        [{"errorCode": "A", "message": "x"}, {"id": 7}], [{"errorCode": "OK", "message": "x"}], [], [[]],
        [{"errorCode": "A", "message": "x"}] * 33, {"result": {"error": "deep"}},
        {"data": {"code": 500, "msg": "x"}, "header": {"code": 500, "msg": "x"}}, {"user": {"code": 500, "msg": "x"}},
        {"meta": {"code": 400, "rows": [1]}}, {f"n{n}": None for n in range(40)} | {"data": {"success": False}},
    ],
)  # fmt: skip
def test_x9_what_only_resembles_an_envelope_of_a_failure(output: Any) -> None:
    """X9: a code of success, data beside the code, a table of codes, a ticket, an empty search: results."""
    assert suspect(output) is None


def test_huge_outputs_are_not_read() -> None:
    """X9: the cost does not grow with the output."""
    big = "Error: " + "x" * 10_000_000
    assert suspect(big) is None
    seen = suspect({"error": big, "rows": [0] * 1_000_000})
    assert seen is not None
    assert len(seen) < 300
    assert suspect({"message": big, "status": "error"} | {str(n): n for n in range(100_000)}) is None
    assert suspect(" " * 10_000_000) is None
    for part in ("a", " ", "{", "<", "失败", "error ", "a."):
        assert suspect(part * (9_000 // len(part))) is None
