"""The HTTP API against a real server, a real store and real runs (I4, I7, X7)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from tests.server.web import STEPS, Place, Web, rested, serving, started, stream

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One server for all tests of this file; each has runs of its own."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "rerail.toml").write_text(
        '[tools.shell]\nlist = ["ls"]\n[notify]\nwebhook = "http://127.0.0.1:9/secret-path"\n'
        'on = []\n[server]\ntoken = "from the settings"\n'  # a notice would come after a run's end, at any time
    )
    with serving(Place(folder), token="s3cret") as found:
        yield found


async def test_a_run_is_started_watched_and_shown(web: Web) -> None:
    """I4: what comes back is what `show --json` prints, whoever asks."""
    async with web.client() as client:
        plan = {"objective": "over HTTP", "steps": STEPS}
        answer = await client.post("/runs", json={"plan": plan, "run_id": "第一 run"})
        run = answer.json()["run_id"]
        assert answer.status_code == 201 and answer.headers["location"] == f"/api/v1/runs/{quote(run)}"
        found = await rested(client, quote(run))
        assert run == "第一 run" and found["status"] == "completed" and found["steps"]["c"]["output"] == 2
        printed = web.place.rerail("show", run)
        assert {**found, "superseded": None} == {**printed, "superseded": None}
        view = (await client.get(f"/runs/{quote(run)}/view")).json()
        assert view["status"] == "completed" and "output" not in view["steps"]["a"] and view["owner"] is None
        assert [row["run_id"] for row in (await client.get("/runs")).json()["runs"]].count(run) == 1


async def test_a_step_is_shown_with_all_that_was_tried(web: Web) -> None:
    """I4: attempts, reflections, output, story, the step as the plan has it."""
    async with web.client() as client:
        odd = "a/b ../c?d#e"
        run = await started(client, {"id": odd, "tool": "flaky"}, {"id": "after", "tool": "echo", "needs": [odd]})
        await rested(client, run)
        found = (await client.get(f"/runs/{run}/steps/{quote(odd, safe='')}")).json()
        same = (await client.get(f"/runs/{run}/step", params={"id": odd})).json()
        assert found["id"] == same["id"] == odd and found["output"] == {"attempt": 2}
        assert [one["outcome"] for one in found["tries"]] == ["failed", "succeeded"]
        assert found["tries"][0]["error"]["code"] == "TOOL_FAILED" and found["reflections"][0]["rung"] == "retry"
        assert found["downstream"] == ["after"] and "attempt 2" in found["why"]
        missing = await client.get(f"/runs/{run}/steps/nobody")
        assert missing.status_code == 404 and missing.json()["code"] == "STEP_UNKNOWN"


async def test_histories_are_read_in_pages(web: Web) -> None:
    """I1, I4: every event once, in order, page by page; filters leave out, and nothing else."""
    async with web.client() as client:
        run = await started(client)
        await rested(client, run)
        whole = (await client.get(f"/runs/{run}/events")).json()
        assert whole["next"] is None and [one["seq"] for one in whole["events"]] == list(
            range(1, len(whole["events"]) + 1)
        )
        pages, after = [], 0
        while after is not None:
            page = (await client.get(f"/runs/{run}/events", params={"after": after, "limit": 4})).json()
            pages += page["events"]
            after = page["next"]
        assert pages == whole["events"] == web.place.rerail("logs", run)
        only = (await client.get(f"/runs/{run}/events", params={"types": "step_failed,done", "limit": 1})).json()
        assert [one["type"] for one in only["events"]] == ["step_failed"] and only["next"] is not None
        rest = (await client.get(f"/runs/{run}/events", params={"types": "done", "after": only["next"]})).json()
        assert [one["type"] for one in rest["events"]] == ["done"] and rest["next"] is None
        mine = (await client.get(f"/runs/{run}/events", params={"step": "b"})).json()["events"]
        assert {one["step"] for one in mine} == {"b"}


async def test_lists_have_pages_and_filters(web: Web) -> None:
    """I4: newest first, each run once, however many there are; by status, by words, by parent."""
    async with web.client() as client:
        runs = [await started(client, STEPS[0], run_id=f"list-{number}") for number in range(7)]
        for run in runs:
            await rested(client, run)
        seen, cursor = [], None
        while True:
            params = {"limit": 3, "q": "LIST-"} | ({"cursor": cursor} if cursor else {})
            page = (await client.get("/runs", params=params)).json()
            assert len(page["runs"]) <= 3
            seen += [row["run_id"] for row in page["runs"]]
            if (cursor := page["next"]) is None:
                break
        assert seen == runs[::-1]
        row = (await client.get("/runs", params={"q": "list-3"})).json()["runs"][0]
        printed = next(one for one in web.place.rerail("ls", "-n", "100") if one["run_id"] == "list-3")
        assert (
            printed.items() <= row.items() and row["counts"] == {"succeeded": 1} and row["shown_status"] == "completed"
        )
        none = (await client.get("/runs", params={"q": "list-", "status": ["failed", "interrupted"]})).json()["runs"]
        assert none == []
        child = await started(client, STEPS[0], parent="list-0")
        below = (await client.get("/runs", params={"parent": "list-0"})).json()["runs"]
        assert [row["run_id"] for row in below] == [child]
        odd = await client.get("/runs", params={"cursor": "bm90aGluZw"})
        assert odd.status_code == 400 and odd.json()["code"] == "USAGE"


async def test_what_failed_is_retried_after_a_look_at_what_would_happen(web: Web) -> None:
    """R7, T4, X7: the dry run changes nothing; the retry does what it said; starting over needs a word for it."""
    async with web.client() as client:
        run = await started(client, {"id": "x", "tool": "needs_file", "args": {"name": "mended"}, "retries": 0},
                            {"id": "y", "tool": "echo", "needs": ["x"]}, {"id": "z", "tool": "echo"})  # fmt: skip
        assert (await rested(client, run))["status"] == "failed"
        seq = (await client.get(f"/runs/{run}")).json()["seq"]
        dry = await client.post(f"/runs/{run}/retry", json={"dry_run": True})
        assert dry.status_code == 200 and dry.json() == web.place.rerail("retry", run, "--dry-run")
        assert dry.json()["roots"] == ["x"] and dry.json()["kept"] == ["z"]
        assert (await client.get(f"/runs/{run}")).json()["seq"] == seq
        (web.place.folder / "mended").touch()
        done = await client.post(f"/runs/{run}/retry", headers={"x-rerail-by": "安娜".encode()})  # type: ignore[dict-item]
        assert done.status_code == 202 and done.json()["run_id"] == run
        assert (await rested(client, run, "completed"))["steps"]["y"]["status"] == "succeeded"
        events = (await client.get(f"/runs/{run}/events", params={"types": "retry_begin"})).json()["events"]
        assert [one["by"] for one in events] == ["安娜"]
        refused = await client.post(f"/runs/{run}/retry", json={})
        assert refused.status_code == 409 and refused.json()["code"] == "RUN_COMPLETED" and refused.json()["hint"]
        over = await client.post(f"/runs/{run}/retry", json={"clean": True})
        assert over.status_code == 409 and over.json()["code"] == "CONFIRM_NEEDED"
        assert (await client.post(f"/runs/{run}/retry", json={"clean": True, "confirmed": True})).status_code == 202


async def test_people_act_on_a_live_run(web: Web) -> None:
    """X7: pause, add, resume, confirm, skip, resolve, repair, cancel; each is an event with who did it."""
    async with web.client(x_rerail_by="bob") as client:
        run = await started(
            client,
            {"id": "gate", "tool": "echo", "confirm": "Really?", "args": {"value": [1]}},
            {"id": "doubt", "tool": "send"},
            {"id": "bad", "tool": "needs_file", "args": {"name": "never"}, "retries": 0},
            {"id": "held", "tool": "hold", "args": {"name": "held"}},
        )
        assert (await client.post(f"/runs/{run}/pause")).status_code == 202
        (web.place.folder / "held").touch()
        assert (await rested(client, run, "waiting"))["waiting_on"][0]["for"] == "paused"
        added = await client.post(f"/runs/{run}/add", json={"steps": [{"id": "more", "tool": "echo"}]})
        assert added.status_code == 202 and "more" in added.json()["steps"]
        assert (await client.post(f"/runs/{run}/resume")).status_code == 202
        waiting = await rested(client, run, "waiting")
        gate = (await client.get(f"/runs/{run}/steps/gate")).json()
        assert gate["waiting_on"]["question"] == "Really?" and gate["args"] == {"value": [1]}
        assert {item["for"] for item in waiting["waiting_on"]} >= {"confirm"}
        assert (await client.post(f"/runs/{run}/confirm", json={"step": "gate"})).status_code == 202
        await rested(client, run, "waiting")
        answer = {"step": "doubt", "outcome": "succeeded", "value": {"sent": True}}
        refused = await client.post(f"/runs/{run}/resolve", json={"step": "doubt", "outcome": "succeeded"})
        assert (refused.status_code, refused.json()["code"]) == (400, "USAGE")
        refused = await client.post(f"/runs/{run}/resolve", json={**answer, "value": None, "attempt": 7})
        assert (refused.status_code, refused.json()["code"]) == (409, "STEP_NOT_WAITING")
        null = await client.post(f"/runs/{run}/resolve", json={**answer, "value": None, "dry_run": True})
        assert null.status_code == 200 and null.json()["becomes"] == {"doubt": "succeeded"}
        assert (await client.post(f"/runs/{run}/resolve", json={**answer, "attempt": 1})).status_code == 202
        assert (await rested(client, run, "failed"))["steps"]["doubt"]["output"] == {"sent": True}
        (web.place.folder / "now").touch()
        mended = await client.post(f"/runs/{run}/repair", json={"step": "bad", "args": {"name": "now"}})
        assert mended.status_code == 202
        assert (await rested(client, run, "completed"))["success"] is True
        events = (await client.get(f"/runs/{run}/events")).json()["events"]
        acted = [(one["action"], one["by"]) for one in events if one["type"] == "acted"]
        assert acted == [(name, "bob") for name in ("pause", "add", "confirm", "resolve", "repair")]
        kinds = [one["kind"] for one in (await client.get(f"/runs/{run}/revisions")).json()["revisions"]]
        assert kinds == ["accepted", "acted", "retry"]


async def test_x10_a_yes_is_to_the_call_that_was_shown(web: Web) -> None:
    """X10: with its digest, edited on the way; another call is refused, and the refusal shows it."""
    async with web.client(x_rerail_by="bob") as client:
        run = await started(client, {"id": "g", "tool": "echo", "confirm": True, "args": {"value": [1]}})
        [gate] = (await rested(client, run, "waiting"))["waiting_on"]
        assert gate["tool"] == "echo" and gate["args"] == {"value": [1]} and len(gate["digest"]) == 32
        assert (await client.get(f"/runs/{run}/steps/g")).json()["waiting_on"] == gate
        assert (await client.get(f"/runs/{run}/view")).json()["waiting_on"] == [gate]
        no = await client.post(f"/runs/{run}/confirm", json={"digest": "0" * 32})
        assert (
            no.status_code == 409 and no.json()["code"] == "GATE_CHANGED" and "echo(value=[1])" in no.json()["detail"]
        )
        bad = await client.post(f"/runs/{run}/confirm", json={"args": {"colour": "red"}})
        assert bad.status_code == 422 and bad.json()["faults"][0]["code"] == "BAD_ARGS"
        assert (
            await client.post(f"/runs/{run}/confirm", json={"ahead": True, "args": {"value": 2}})
        ).status_code == 400
        yes = await client.post(f"/runs/{run}/confirm", json={"digest": gate["digest"], "args": {"value": "${x}"}})
        assert yes.status_code == 202
        assert (await rested(client, run, "completed"))["steps"]["g"]["output"] == "${x}"
        events = (await client.get(f"/runs/{run}/events")).json()["events"]
        [acted] = [one for one in events if one["type"] == "acted"]
        assert (acted["by"], acted["call"]["args"], acted["digest"]) == (
            "bob",
            {"value": "${x}"},
            acted["call"]["digest"],
        )
        assert [one["agreed"] for one in events if one["type"] == "step_started"] == [acted["digest"]]


async def test_every_action_on_a_step_is_shown_before_it_happens(web: Web) -> None:
    """R7, I7: a dry run of each tells what it would lead to, in the reader's language, and does nothing."""
    async with web.client() as client:
        run = await started(
            client,
            {"id": "gate", "tool": "echo", "confirm": "Really?"},
            {"id": "doubt", "tool": "send"},
            {"id": "bad", "tool": "needs_file", "args": {"name": "never"}, "retries": 0},
            {"id": "after", "tool": "echo", "needs": ["bad", "doubt", "gate"]},
        )
        await rested(client, run, "waiting")
        before = (await client.get(f"/runs/{run}/events")).json()
        for action, body, becomes, runs in (
            ("skip", {"step": "gate"}, {"gate": "skipped"}, []),
            ("confirm", {}, {}, ["gate"]),
            ("confirm", {"step": "gate", "refuse": True}, {"gate": "failed"}, []),
            ("resolve", {"step": "doubt", "outcome": "succeeded", "value": 1}, {"doubt": "succeeded"}, []),
            ("resolve", {"step": "doubt", "outcome": "rerun"}, {}, ["doubt"]),
            ("repair", {"step": "bad", "args": {"name": "now"}}, {}, ["bad"]),  # what follows still waits for the doubt
        ):
            told = await client.post(f"/runs/{run}/{action}?lang=zh", json={**body, "dry_run": True})
            found = told.json()
            assert told.status_code == 200 and found["run_id"] == run, told.text
            assert (found["becomes"], [row["step"] for row in found["rerun"]]) == (becomes, runs), action
            assert all(row["why"] in ("按要求", "尚未执行") for row in found["rerun"])
        refused = await client.post(f"/runs/{run}/repair", json={"step": "bad", "tool": "nowhere", "dry_run": True})
        assert refused.status_code == 422
        assert (await client.get(f"/runs/{run}/events")).json() == before


async def test_a_run_is_cancelled_and_a_step_skipped(web: Web) -> None:
    """X7: the reason is kept; a skipped step is a hole, and the run goes on."""
    async with web.client() as client:
        run = await started(client, {"id": "h", "tool": "hold", "args": {"name": "nothing"}})
        assert (await client.post(f"/runs/{run}/cancel", json={"reason": "enough"})).status_code == 202
        assert (await rested(client, run))["status"] == "cancelled"
        other = await started(
            client, {"id": "g", "tool": "echo", "confirm": True}, {"id": "k", "tool": "echo", "needs": ["g"]}
        )
        await rested(client, other, "waiting")
        assert (await client.post(f"/runs/{other}/skip", json={"step": "g", "reason": "not today"})).status_code == 202
        assert (await rested(client, other))["steps"]["g"]["code"] == "SKIP_USER"
        no = await client.post(f"/runs/{other}/confirm", json={"step": "g"})
        assert no.status_code == 409


async def test_runs_of_other_processes_appear_and_can_be_acted_on(web: Web) -> None:
    """I4, T7: the command line's runs are seen live; what is wished for reaches their owner through the store."""
    held = {"id": "h", "tool": "hold", "args": {"name": "from-cli"}}
    plan = web.place.plan(held, {"id": "g", "tool": "echo", "confirm": True, "needs": ["h"]}, name="cli.json")
    async with web.client() as client:
        async with stream(client, "/stream") as rows:
            process = web.place.spawn("run", plan, "--tools", "tools.py")
            async with asyncio.timeout(30):
                async for event in rows:
                    if (
                        event.name == "run"
                        and event.data["objective"] == "a plan of the tests"
                        and event.data["events"] > 2
                    ):
                        run = event.data["run_id"]
                        break
        async with stream(client, f"/runs/{run}/live") as events:
            shown = (await anext(events)).data
            assert shown["status"] == "running" and shown["owner"].endswith(f":{process.pid}") and not shown["drives"]
            assert (await client.post(f"/runs/{run}/pause")).status_code == 202
            (web.place.folder / "from-cli").touch()
            async with asyncio.timeout(30):
                async for event in events:
                    if event.name == "patch" and event.data["run"].get("status") == "waiting":
                        break
        process.communicate(timeout=30)
        assert process.returncode == 3
        assert (await client.post(f"/runs/{run}/resume")).status_code == 202
        await rested(client, run, "waiting")
        assert (await client.post(f"/runs/{run}/confirm")).status_code == 202
        assert (await rested(client, run))["status"] == "completed"


async def test_the_command_line_sees_and_steers_the_servers_runs(web: Web) -> None:
    """I7, T7: the other way round."""
    async with web.client() as client:
        run = await started(
            client,
            {"id": "h", "tool": "hold", "args": {"name": "never-there"}},
            {"id": "i", "tool": "echo", "needs": ["h"]},
        )
        assert web.place.rerail("show", run)["owner"].endswith(f":{web.process.pid}")
        told = await asyncio.to_thread(web.place.rerail, "cancel", run)
        assert told["handed_to"].endswith(f":{web.process.pid}")
        assert (await rested(client, run))["status"] == "cancelled"


async def test_plans_may_use_what_the_server_was_started_with(web: Web) -> None:
    """I4, P5: every fault at once; shell tools only if the server was told so; no file is ever opened."""
    async with web.client() as client:
        steps = [{"id": "l", "tool": "list"}, {"id": "e", "tool": "ecko"}, {"id": "e", "tool": "echo", "needs": ["q"]}]
        checked = (await client.post("/plans/check", json={"plan": {"steps": steps}})).json()
        assert not checked["ok"] and len(checked["faults"]) >= 4
        assert "--allow shell" in next(one["hint"] for one in checked["faults"] if one["step"] == "l")
        # A step that is called like a tool has its own faults, and no option helps.
        odd = {"plan": {"steps": [{"id": "list", "tool": "echo", "args": {"x": 1}}]}}
        [fault] = (await client.post("/plans/check", json=odd)).json()["faults"]
        assert (fault["code"], fault["hint"]) == ("BAD_ARGS", "") and "'list'" in fault["message"]
        assert "--allow" not in (await client.post("/runs", json=odd)).json()["hint"]
        refused = await client.post("/runs", json={"plan": {"steps": steps}})
        assert refused.status_code == 422 and refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["code"] == "PLAN_INVALID" and len(refused.json()["faults"]) == len(checked["faults"])
        assert (await client.get("/tools")).json()["withheld"] == [{"name": "list", "kind": "shell"}]
        for odd in ("tools.py", "/etc/passwd", "12", "[]", "", {"steps": []}, []):
            answer = await client.post("/runs", json={"plan": odd})
            assert answer.status_code == 422, (odd, answer.text)
        text = "objective: as text\nsteps:\n  - {id: a, tool: echo}\n"
        assert (await client.post("/plans/check", json={"plan": text})).json()["ok"]
        neither = await client.post("/runs", json={"run_id": "x"})
        assert neither.status_code == 400 and neither.json()["code"] == "USAGE"
        assert (await client.post("/runs", json={"objective": "do it"})).json()["code"] == "NO_MODEL"


async def test_what_is_wrong_is_told_as_a_problem(web: Web) -> None:
    """I4, T12: our codes, a sentence and a hint, in the reader's language; unknown keys are no surprise."""
    async with web.client() as client:
        missing = await client.get("/runs/nobody")
        assert missing.status_code == 404 and missing.headers["content-type"] == "application/problem+json"
        assert missing.json()["code"] == "RUN_UNKNOWN" and missing.json()["status"] == 404 and missing.json()["hint"]
        chinese = await client.get("/runs/nobody", headers={"accept-language": "zh-CN,zh;q=0.9"})
        assert chinese.json()["code"] == "RUN_UNKNOWN" and "没有" in chinese.json()["detail"]
        assert "没有" in (await client.get("/runs/nobody", params={"lang": "zh"})).json()["detail"]
        odd = await client.post("/runs", json={"plan": {}, "dependson": 1})
        assert odd.status_code == 400 and "dependson" in odd.json()["detail"]
        for body in (b"{", b"[1]", b'{"plan": "\\ud800"}', b"\xff", b'{"plan": ' + b"[" * 5000 + b"]" * 5000 + b"}"):
            answer = await client.post("/runs", content=body, headers={"content-type": "application/json"})
            assert answer.status_code in (400, 422), answer.text
        for kind in ("text/plain", "application/x-www-form-urlencoded", "", "multipart/form-data; boundary=x"):
            answer = await client.post("/runs", content=b'{"plan": {}}', headers={"content-type": kind})
            assert answer.status_code == 400 and "has to be JSON" in answer.json()["detail"], answer.text
            assert "application/json" in answer.json()["hint"]
        assert (await client.get("/runs", params={"limit": 0})).status_code == 400
        assert (await client.put("/runs")).status_code == 405
        assert (await client.get("/nothing")).json()["code"] == "NOT_FOUND"


async def test_what_tools_made_cannot_run_in_a_page(web: Web) -> None:
    """I4: artifacts are saved, not shown: attachment, no sniffing, a sandbox; HTML is only bytes."""
    async with web.client() as client:
        script = "<script>alert(1)</script>"
        steps = {"id": "<img src=x>", "tool": "write", "args": {"text": script}, "produces": ["page.html"]}
        run = await started(client, steps)
        await rested(client, run)
        rows = (await client.get(f"/runs/{run}/artifacts")).json()
        assert {row["name"] for row in rows} == {"<img src=x>", "page.html"}
        for name, text in (("page.html", script), ("<img src=x>", str(len(script)))):
            answer = await client.get(f"/runs/{run}/artifacts/{quote(name, safe='')}")
            assert answer.text == text
            assert answer.headers["content-disposition"].startswith("attachment;")
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "sandbox" in answer.headers["content-security-policy"]
            assert "html" not in answer.headers["content-type"]
        for name in ("../../tools.py", "/etc/passwd", "..%2f..%2ftools.py", "nothing"):
            answer = await client.get(f"/runs/{run}/artifacts/{name}")
            assert answer.status_code == 404, name


async def test_secrets_are_not_shown(web: Web) -> None:
    """I4, section 11: neither the token nor an address that may hold one."""
    async with web.client() as client:
        shown = await client.get("/settings")
        assert {row["key"] for row in shown.json()["settings"]} >= {"server.token", "run.concurrency"}
        assert "from the settings" not in shown.text and "secret-path" not in shown.text and "s3cret" not in shown.text
        assert "from the settings" not in json.dumps(web.place.rerail("config"))


async def test_the_rest_of_what_the_command_line_shows(web: Web) -> None:
    """I7: why, graph, logs, tools, memory: the same, over HTTP."""
    async with web.client() as client:
        run = await started(client)
        await rested(client, run)
        story = (await client.get(f"/runs/{run}/why")).json()
        printed = web.place.rerail("why", run)
        told = [line for line in printed["story"] if "webhook" not in line]  # it may be told of it in between
        assert [line for line in story["story"] if "webhook" not in line] == told
        assert story["failures"] == printed["failures"]
        assert "步骤" in (await client.get(f"/runs/{run}/why", params={"step": "b", "lang": "zh"})).json()["text"]
        assert (await client.get(f"/runs/{run}/graph")).json() == web.place.rerail("graph", run)
        other = {"set": ["run.concurrency=1", "run.max_attempts=1"]}
        again = (await client.get(f"/runs/{run}/replay", params=other)).json()
        words = ("--set", "run.concurrency=1", "--set", "run.max_attempts=1")
        assert again == web.place.rerail("replay", run, *words) and again["replayed"]["calls"] == 1
        refused = await client.get(f"/runs/{run}/replay", params={"set": "server.port=1"})
        assert refused.status_code == 422 and "run.concurrency" in refused.json()["detail"]
        lines = (await client.get(f"/runs/{run}/logs")).json()["lines"]
        assert "echoing" in [line["text"] for line in lines] and lines[0]["kind"] == "act"
        last = (await client.get(f"/runs/{run}/logs", params={"tail": 2})).json()["lines"]
        assert last == lines[-2:]
        log = web.place.folder / ".rerail" / "work" / run / "worker.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        stamp = datetime.fromtimestamp(lines[-1]["at"] + 1, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        log.write_text(f"{stamp} worker {run}: here\nby a tool\n")
        said, by_a_tool = (await client.get(f"/runs/{run}/logs", params={"tail": 2})).json()["lines"]
        assert said["text"] == "here" and said["at"] > lines[-1]["at"]
        assert by_a_tool["text"] == "by a tool" and by_a_tool["at"] is None  # nobody knows when it was printed
        tools = (await client.get("/tools")).json()["tools"]
        assert {one["name"] for one in tools} >= {"echo", "send"} and "list" not in {one["name"] for one in tools}
        assert next(one for one in tools if one["name"] == "send")["effect"] == "once"
        assert (await client.get("/memory")).json()["memory"] == web.place.rerail("memory")
        assert (await client.delete("/memory")).json()["memory"] == []


async def test_a_read_only_server_shows_and_changes_nothing(tmp_path: object) -> None:
    """I4: looking and dry runs; everything else is refused."""
    place = Place(tmp_path)  # type: ignore[arg-type]
    failed = {"id": "x", "tool": "needs_file", "args": {"name": "no"}, "retries": 0}
    run = place.rerail("run", place.plan(failed), "--tools", "tools.py", code=1)["run_id"]
    with serving(place, "--read-only") as web:
        async with web.client() as client:
            assert (await client.get("/health")).json()["read_only"] is True
            assert (await client.post(f"/runs/{run}/retry", json={"dry_run": True})).json()["roots"] == ["x"]
            skipped = await client.post(f"/runs/{run}/skip", json={"step": "x", "dry_run": True})
            assert skipped.status_code == 200 and skipped.json()["becomes"] == {"x": "skipped"}
            for path, body in (
                ("/runs", {"plan": {"steps": STEPS}}), (f"/runs/{run}/retry", {}), (f"/runs/{run}/cancel", {}),
                (f"/runs/{run}/repair", {"step": "x", "args": {}}), (f"/runs/{run}/skip", {"step": "x"}),
            ):  # fmt: skip
                answer = await client.post(path, json=body)
                assert answer.status_code == 403 and answer.json()["code"] == "READ_ONLY", path
            assert (await client.get(f"/runs/{run}")).json()["seq"] == place.rerail("show", run)["seq"]


async def test_a_killed_servers_run_is_resumed_by_the_next(tmp_path: object) -> None:
    """E1, I4: kill -9 in the middle; one that only reads shows it as interrupted, the next goes on with it."""
    place = Place(tmp_path)  # type: ignore[arg-type]
    with serving(place) as web:
        async with web.client() as client:
            run = await started(
                client, {"id": "a", "tool": "echo"}, {"id": "h", "tool": "hold", "args": {"name": "go"}, "needs": ["a"]}
            )
            async with stream(client, f"/runs/{run}/live") as events:
                async for event in events:
                    shown = event.data["steps"]
                    if "h" in shown and shown["h"]["status"] == "running":
                        break
        web.process.send_signal(signal.SIGKILL)
    (place.folder / "go").touch()
    with serving(place, "--read-only") as web:
        async with web.client() as client:
            assert (await client.get(f"/runs/{run}/view")).json()["interrupted"]
            row = (await client.get("/runs", params={"status": "interrupted"})).json()["runs"][0]
            assert row["run_id"] == run
    with serving(place) as web:
        async with web.client() as client:
            shown = await rested(client, run)
            assert shown["status"] == "completed" and shown["steps"]["a"]["attempts"] == 1
