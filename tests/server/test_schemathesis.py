"""Whatever is sent to the API that its description allows, and much that it does not: never a fault of ours (I4)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from tests.server.web import STEPS, Place, Web, serving

from rerail.api import Engine
from rerail.server.app import Files, described, make_api
from rerail.server.state import ServerState

EXAMPLES = int(os.environ.get("RERAIL_SCHEMA_EXAMPLES", "12"))  # `make long` looks at many more

SCHEMA = schemathesis.openapi.from_dict(described(make_api(ServerState(Engine("memory://")), Files())))
OPERATIONS = {one.ok().label: one.ok() for one in SCHEMA.get_all_operations()}
ENDLESS = ("/stream", "/live")


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server with some runs: completed, failed, waiting."""
    place = Place(tmp_path_factory.mktemp("schema"))
    with serving(place) as found:
        plans: dict[str, list[dict[str, Any]]] = {
            "done": STEPS,
            "failed": [{"id": "x", "tool": "needs_file", "args": {"name": "no"}, "retries": 0}],
            "waiting": [{"id": "g", "tool": "echo", "confirm": True}],
        }
        for name, steps in plans.items():
            body = {"plan": {"objective": name, "steps": steps}, "run_id": name}
            assert httpx.post(f"{found.url}api/v1/runs", json=body).status_code == 201
        yield found


def test_the_description_is_whole(web: Web) -> None:
    """I4: every route has a summary, an example of what it gives, and its problems; bodies have examples."""
    found = httpx.get(f"{web.url}openapi.json").json()
    assert found["openapi"].startswith("3.1") and len(found["paths"]) >= 28
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            assert operation["summary"] and operation["description"], where
            good = [code for code in operation["responses"] if code.startswith("2")]
            assert good, where
            for code in good:
                for kind in operation["responses"][code].get("content", {}).values():
                    assert "example" in kind or kind["schema"].get("format") == "binary", where
                    if kind["schema"]["type"] != "string":
                        jsonschema.validate(kind["example"], kind["schema"])
            if not path.endswith("/health"):
                problems = [code for code in operation["responses"] if code.startswith(("4", "5"))]
                assert {"400", "401", "421"} <= set(problems), where
                content = operation["responses"]["400"]["content"]
                assert content["application/problem+json"]["example"]["code"], where


@pytest.mark.parametrize("run", ["done", "failed", "waiting"])
def test_answers_have_the_fields_that_are_described(web: Web, run: str) -> None:
    """I4: every field of an answer is in the description, of that kind; none is missing."""
    paths = httpx.get(f"{web.url}openapi.json").json()["paths"]
    step = {"done": "b", "failed": "x", "waiting": "g"}[run]
    dry = {"dry_run": True}
    asked: list[tuple[str, str, Any]] = [
        ("get", path, None)
        for path, operations in paths.items()
        if "get" in operations and not path.endswith(("/stream", "/live", "{name}"))
    ]
    asked += [("post", "/api/v1/plans/check", {"plan": {"steps": STEPS}}), ("post", "/api/v1/retry", dry)]
    if run == "failed":
        asked += [("post", f"/api/v1/runs/{{run}}/{action}", {**body, **dry}) for action, body in (
            ("retry", {}), ("skip", {"step": step}), ("repair", {"step": step, "args": {"name": "yes"}}),
            ("resolve", {"step": step, "outcome": "succeeded", "value": 1}),
        )]  # fmt: skip
    if run == "waiting":
        asked += [("post", "/api/v1/runs/{run}/confirm", dry), ("post", "/api/v1/runs/{run}/pause", None)]
    for method, path, body in asked:
        url = web.url.rstrip("/") + path.replace("{run}", run).replace("{step}", step)
        wanted = {"/step": {"id": step}, "/replay": {"set": "retry.max_retries=1"}}.get(path[path.rindex("/") :], {})
        answer = httpx.request(method, url, json=body, params=wanted)
        assert answer.is_success, answer.text
        schema = paths[path][method]["responses"][str(answer.status_code)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), schema)
        assert schema["type"] == "array" or set(answer.json()) <= set(schema["properties"]), path


@pytest.mark.parametrize("label", [label for label in OPERATIONS if not label.endswith(ENDLESS)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_no_request_makes_the_server_fail(web: Web, label: str, mode: GenerationMode) -> None:
    """I4: nothing that is sent, fitting or not, ends in a 5xx; what is refused is a problem with a code."""

    @settings(
        max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(OPERATIONS[label].as_strategy(generation_mode=mode), st.sampled_from(["", "done", "failed", "waiting"]))
    def sent(case: Any, run: str) -> None:
        if run and "run" in (case.path_parameters or {}):
            case.path_parameters["run"] = run
        answer = case.call(base_url=web.url)
        assert answer.status_code < 500, answer.text
        if answer.status_code >= 400 and case.method != "HEAD":
            assert answer.headers["content-type"][0] == "application/problem+json", answer.text
            assert answer.json()["code"] and answer.json()["detail"]

    with contextlib.suppress(Unsatisfiable):  # some routes take nothing that could be wrong
        sent()


@pytest.mark.parametrize("path", ["runs/done/stream", "runs/done/live", "stream"])
@pytest.mark.parametrize("odd", ["?after=-1", "?after=x", "?events=7", "?after=99999999999999999999", "?lang=xx", ""])
def test_streams_take_odd_words_too(web: Web, path: str, odd: str) -> None:
    """I4: a stream or a problem, nothing else."""
    with httpx.stream("GET", f"{web.url}api/v1/{path}{odd}", headers={"last-event-id": "\x7f" * 9}) as answer:
        assert answer.status_code in (200, 400)
