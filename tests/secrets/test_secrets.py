"""Secrets are in nothing that a run leaves behind or shows: each way out is taken, and everything is searched."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.cli.conftest import Here, Place, here, place  # noqa: F401

import rerail
from rerail.settings.loading import Settings, secrets_of
from rerail.testing import ScriptedModel
from rerail.values.redaction import SHORTEST, Scrub

KEY = 'sk/live "51H8+xyz'  # quotes and slashes: it is written differently in JSON and in addresses
NAME = "SHOP_API_KEY"
FORMS = tuple({KEY, json.dumps(KEY)[1:-1], quote(KEY), quote(KEY, safe="")})


def assert_nowhere(seen: str | bytes) -> None:
    """Fail if any form of the secret is in it."""
    data = seen if isinstance(seen, bytes) else seen.encode()
    for form in FORMS:
        at = data.find(form.encode())
        assert at < 0, data[max(0, at - 120) : at + 120]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose environment holds a secret."""
    monkeypatch.setenv(NAME, KEY)


@rerail.tool
async def tells(how: str, ctx: rerail.Context) -> Any:
    """Let the secret out, in one of many ways."""
    secret = os.environ[NAME]
    ctx.log(f"logging in with {secret}")
    ctx.progress(0.5, f"with {secret}")
    match how:
        case "output":
            return {"auth": {"header": f"Bearer {secret}", secret: 1}, "list": [secret, 3, None]}
        case "large":
            return {"page": "x" * 5000 + secret + "y" * 5000}
        case "address":
            return f"https://shop.example/?key={quote(secret, safe='')}"
        case "json in a text":
            return json.dumps({"key": secret})
        case "raises":
            raise RuntimeError(f"401 for key {secret}")
        case _:
            raise rerail.ToolError(f"no {secret}", category="parameter_error", details={"key": secret})


@rerail.tool(effect="once", verify=lambda args: rerail.Verified(output={"seen": os.environ[NAME]}))
async def loses() -> None:
    """Do it, and lose the answer that tells the secret."""
    raise ConnectionResetError(os.environ[NAME])


def steps(*how: str) -> list[dict[str, Any]]:
    """One step for each way."""
    return [{"id": f"s{n}", "tool": "tells", "args": {"how": one}} for n, one in enumerate(how)]


async def test_no_secret_is_in_what_a_run_leaves_behind(tmp_path: Path) -> None:
    """Outputs small and large, error texts, logs, progress, what a look brought back: the whole store is searched."""
    plan = {
        "objective": "tell",
        "steps": [
            *steps("output", "large", "address", "json in a text"),
            {"id": "bad", "tool": "tells", "args": {"how": "raises"}, "critical": False},
            {"id": "worse", "tool": "tells", "args": {"how": "error"}, "critical": False},
            {"id": "lost", "tool": "loses"},
            {"id": "after", "tool": "tells", "args": {"how": "output"}, "needs": ["s0", "s1"]},
        ],
    }
    async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db", [tells, loses], workspace=tmp_path / "files") as engine:
        result = await engine.run(plan)
        assert result.complete, result.summary
        assert result.steps["s0"].output["auth"]["header"] == "Bearer ***"
        assert result.steps["s0"].output["list"] == ["***", 3, None]
        assert result.steps["s1"].output["page"].endswith("***" + "y" * 5000)
        assert result.steps["s2"].output == "https://shop.example/?key=***"
        assert json.loads(result.steps["s3"].output) == {"key": "***"}
        assert result.steps["lost"].output == {"seen": "***"}
        history = await engine.events(result.run_id)
        assert_nowhere(repr(history))
        assert "logging in with ***" in repr(history)
        for step in ("bad", "worse"):
            assert_nowhere(str(await engine.why(result.run_id, step)))
        assert_nowhere(repr(result) + str(result.to_dict()))
        left = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]  # with the log still beside it
    assert len(left) >= 2
    for data in left:
        assert_nowhere(data)


async def test_no_secret_is_in_what_a_model_is_told(tmp_path: Path) -> None:
    """M4: a mind sees the history as it is kept."""
    model = ScriptedModel(reflect=[{"diagnosis": "wrong", "action": "give_up"}] * 3, repair=[{}] * 3, replan=[{}] * 3)
    plan = {"objective": "tell", "steps": [*steps("output"), {**steps("error")[0], "id": "bad", "needs": ["s0"]}]}
    async with rerail.Engine("memory://", [tells], {"evaluation": {"judge": False}}, model) as engine:
        await engine.run(plan)
    assert model.asked
    assert_nowhere(repr(model.asked))


async def test_plans_and_actions_that_hold_a_secret_are_refused_by_its_name() -> None:
    """The value would be kept, and blotted out the tool could not use it; nothing is started and nothing changes."""
    async with rerail.Engine("memory://", [tells]) as engine:
        with pytest.raises(rerail.PlanError) as caught:
            await engine.run({"objective": "o", "steps": [*steps("output"), *steps("output", KEY)[1:]]})
        [fault] = caught.value.faults
        assert (fault.code, fault.step) == ("SECRET_IN_PLAN", "s1")
        assert NAME in fault.message and "environment" in fault.message
        assert_nowhere(str(caught.value))
        assert not await engine.list()
        failed = await engine.run({"objective": "o", "steps": steps("error")})
        with pytest.raises(rerail.Refused) as refused:
            await engine.repair(failed.run_id, "s0", args={"how": KEY})
        assert refused.value.code == "SECRET_GIVEN"
        assert_nowhere(str(refused.value))


async def test_what_holds_no_secret_is_left_as_it_is() -> None:
    """A word that is too short to be one, and a number, stay."""
    os.environ["ODD_TOKEN"] = "12345678"
    os.environ["LOCAL_PASSWORD"] = "ollama"
    try:

        @rerail.tool
        async def plain() -> Any:
            return {"n": 12345678, "who": "ollama", "text": "at 12345678"}

        async with rerail.Engine("memory://", [plain]) as engine:
            result = await engine.run({"objective": "o", "steps": [{"id": "a", "tool": "plain"}]})
        assert result.steps["a"].output == {"n": 12345678, "who": "ollama", "text": "at ***"}
    finally:
        del os.environ["ODD_TOKEN"], os.environ["LOCAL_PASSWORD"]


HEADERS = {"X-Auth": "Bearer header-secret", "Y": "{env.Y}"}


def test_where_secrets_come_from() -> None:
    """By the names of variables and settings, by headers, passwords, tools, models and MCP servers; never by itself."""
    settings = Settings.load(
        {
            "secrets": {"env": ["MY_*"]},
            "store": {"url": "postgresql://ada:pass-in-address@db/x"},
            "server": {"token": "token-of-server"},
            "notify": {"webhook": "https://hooks.example/services/T1/B2"},
            "model": {"key_env": "MODEL", "reflect": {"key_env": "OTHER_MODEL"}},
            "mcp": {"servers": {"git": {"command": ["g"], "env": {"A": "${env:GIT_CRED}", "PASSWORD": "literal-one"}}}},
            "tools": {"http": {"x": {"url": "https://x.example/", "headers": HEADERS}}},
        }
    )  # fmt: skip
    environ = {
        "MY_OWN": "by-a-pattern", "MODEL": "key-of-model", "OTHER_MODEL": "key-of-another", "GIT_CRED": "of-a-server",
        "STRIPE": "named-by-a-tool", "PATH": "/usr/bin:/bin", "SHELL": "/bin/zsh-5.9", "X_TOKEN": "not-among-patterns",
    }  # fmt: skip

    @rerail.tool(secrets=["STRIPE"])
    def pays() -> None:
        """Know a secret."""

    found = secrets_of(settings, [pays.spec], environ)
    assert {value: name for value, name in found.items() if len(value) >= SHORTEST} == {
        "by-a-pattern": "MY_OWN", "key-of-model": "MODEL", "key-of-another": "OTHER_MODEL", "of-a-server": "GIT_CRED",
        "named-by-a-tool": "STRIPE", "pass-in-address": "store.url", "token-of-server": "server.token",
        "services/T1/B2": "notify.webhook", "literal-one": "mcp.servers.git.env.PASSWORD",
        "Bearer header-secret": "tools.http.x.headers.X-Auth", "header-secret": "tools.http.x.headers.X-Auth",
    }  # fmt: skip


@pytest.mark.parametrize("word", ["postgres", "CHANGEME", "Password"])
def test_a_plain_word_is_a_secret_only_by_name(word: str) -> None:
    """What a machine has set by default must not blot out, or refuse, whatever speaks of it."""
    settings = Settings.load({"store": {"url": f"postgresql://postgres:{word}@db/x"}})
    environ = {"POSTGRES_PASSWORD": word, "REAL_PASSWORD": f"{word}7"}
    assert secrets_of(settings, [], environ) == {f"{word}7": "REAL_PASSWORD"}

    @rerail.tool(secrets=["POSTGRES_PASSWORD"])
    def pays() -> None:
        """Know a secret."""

    assert secrets_of(settings, [pays.spec], environ)[word] == "POSTGRES_PASSWORD"


def test_a_scrub_says_nothing_of_itself() -> None:
    """It is in tracebacks and debuggers."""
    assert "51H8" not in repr(Scrub({KEY: NAME}))


@pytest.mark.parametrize("given", ["ONE", [1], [""], 3])
def test_secrets_of_a_tool_are_names(given: Any) -> None:
    """A mistake in a declaration says what to write."""
    with pytest.raises(ValueError, match="secrets is a list of environment variables"):
        rerail.tool(tells.fn, secrets=given)


# -- Requests and commands ----------------------------------------------------------------------------------------


class Echo(BaseHTTPRequestHandler):
    """A server that sends back whatever it was sent."""

    def do_GET(self) -> None:
        """Tell the headers, and refuse."""
        status = 403 if self.path.startswith("/no") else 200
        body = json.dumps({"path": self.path, "headers": dict(self.headers)}).encode()
        self.server.seen.append(self.headers["Authorization"])  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Quietly."""


@pytest.fixture
def echo() -> Iterator[ThreadingHTTPServer]:
    """The server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.seen = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_request_carries_the_secret_and_nothing_else_does(
    echo: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M2: `{env.NAME}` is filled with every call, reaches the server, and comes back blotted out."""
    monkeypatch.setenv("UNPATTERNED", "another-secret/1")
    base = f"http://127.0.0.1:{echo.server_port}"
    declared = {
        "http": {
            "get": {
                "url": base + "/{what}",
                "query": {"k": "{env.UNPATTERNED}"},
                "headers": {"Authorization": "Key {env.SHOP_API_KEY}"},
            },
            "unset": {"url": base + "/x", "headers": {"Authorization": "{env.NOT_SET_HERE}"}},
        },
        "shell": {"say": {"argv": ["sh", "-c", "echo $K; echo $K >&2; exit 3"], "env": {"K": "{env.UNPATTERNED}"}}},
    }  # fmt: skip
    plan = {
        "objective": "o",
        "steps": [
            {"id": "yes", "tool": "get", "args": {"what": "yes"}},
            {"id": "no", "tool": "get", "args": {"what": "no"}, "critical": False},
            {"id": "unset", "tool": "unset", "critical": False},
            {"id": "say", "tool": "say", "critical": False},
        ],
    }
    async with rerail.Engine(f"sqlite:///{tmp_path}/runs.db", (), {"tools": declared}) as engine:
        result = await engine.run(plan)
        history = repr(await engine.events(result.run_id))
    assert echo.seen[0] == f"Key {KEY}"  # type: ignore[attr-defined]
    assert result.steps["yes"].output["body"]["headers"]["Authorization"] == "Key ***"
    assert result.steps["yes"].output["body"]["path"] == "/yes?k=***"
    assert_nowhere(history)
    assert "another-secret" not in history
    assert "NOT_SET_HERE is not set" in history
    assert history.count("VARIABLE_UNSET") >= 1


# -- The command line ---------------------------------------------------------------------------------------------

TELLING = '''

@rerail.tool
def blab(ctx: rerail.Context):
    """Print, log and raise the secret."""
    import sys
    secret = os.environ["SHOP_API_KEY"]
    print("printed", secret)
    print("said", secret, file=sys.stderr)
    ctx.log("logged " + secret)
    import subprocess
    os.write(1, b"written " + secret.encode() + b"\\n")
    sys.stdout.buffer.write(b"buffered " + secret.encode() + b"\\n")
    sys.stdout.flush()
    subprocess.run(["sh", "-c", 'echo "from a child $SHOP_API_KEY"; echo "and $SHOP_API_KEY" >&2'], check=True)
    for part in ("in pieces ", secret[:9], secret[9:] + "\\n"):
        os.write(2, part.encode())
        __import__("time").sleep(0.05)
    os.environ["ROTATED"] = "looked-up-when-called"
    raise ValueError("raised " + secret)
'''


def test_no_secret_is_in_what_workers_and_commands_say(place: Place, here: Here) -> None:  # noqa: F811
    """T9, T12: the worker's log, every command that looks, in both languages, and every file of the folder."""
    with (place.folder / "toolbox.py").open("a") as file:
        file.write(TELLING)
    started = ("start", place.plan({"id": "a", "tool": "blab"}), "--tools", "toolbox.py", "--json")
    run = place(*started, code=0, **{NAME: KEY}).json["run_id"]
    place.until(lambda: here("show", run, "--json").json["status"] == "failed")
    for command in (("show", run), ("logs", run), ("why", run), ("why", run, "a"), ("ls",), ("config",), ("memory",)):
        for more in ((), ("--json",), ("--lang", "zh")):
            said = here(*command, *more)
            assert_nowhere(said.out + said.err)
    log = next(place.folder.rglob("worker.log")).read_text()
    for word in ("printed", "said", "raised", "written", "buffered", "from a child", "and", "in pieces"):
        assert f"{word} ***" in log, word
    for file in place.folder.rglob("*"):
        if file.is_file() and file.name != "toolbox.py":
            assert_nowhere(file.read_bytes())


LOUD = """
import os, subprocess, sys, time
import rerail

@rerail.tool(effect="repeatable")
def dies():
    \"\"\"End the worker with words in the pipe, and a child that goes on.\"\"\"
    os.write(1, b"last words " + os.environ["SHOP_API_KEY"].encode())
    subprocess.Popen(["sh", "-c", "sleep 0.5; echo the child goes on; echo $? > child"], cwd=os.path.dirname(__file__))
    os.kill(os.getpid(), 9)
"""


def test_the_last_words_of_a_worker_are_kept(place: Place) -> None:  # noqa: F811
    """T9: what it wrote before kill -9 is in the log, without secrets, and its child can still write."""
    (place.folder / "loud.py").write_text(LOUD)
    place("start", place.plan({"id": "a", "tool": "dies"}), "--tools", "loud.py", "--json", code=0, **{NAME: KEY})
    place.until(lambda: (place.folder / "child").exists() and (place.folder / "child").read_text() == "0\n")
    log = next(place.folder.rglob("worker.log"))
    place.until(lambda: "the child goes on" in log.read_text())
    assert "last words ***" in log.read_text()
    assert_nowhere(log.read_bytes())


async def test_what_is_cut_is_redacted_before(monkeypatch: pytest.MonkeyPatch, echo: ThreadingHTTPServer) -> None:
    """SECURITY: no piece of a secret stays at the edge of what is kept of stderr, bodies, tracebacks and messages."""
    base = f"http://127.0.0.1:{echo.server_port}"
    shell = {
        "tail": ["sh", "-c", f'echo "$SHOP_API_KEY{"y" * 1990}" >&2; exit 3'],
        "head": {"argv": ["sh", "-c", f'printf %s "{"x" * 190}$SHOP_API_KEY"'], "parse": "json"},
    }
    # The body is {"path": "/no/…", …}: the secret stands across the 500th character.
    http = {"body": {"url": base + "/no/{fill}", "headers": {"Authorization": "{env.SHOP_API_KEY}"}}}

    @rerail.tool
    def long() -> None:
        raise ValueError("z" * 3950 + KEY + "z" * 100)

    @rerail.tool
    def deep() -> None:
        raise ValueError(KEY + "y" * 7980)

    found = set()
    for size in range(300, 480, 10):
        steps = [{"id": f"body{size}", "tool": "body", "args": {"fill": "f" * size}, "critical": False}]
        async with rerail.Engine("memory://", (), {"tools": {"http": http}}) as engine:
            result = await engine.run({"steps": steps})
            found.add(repr(await engine.events(result.run_id)))
    steps = [{"id": name, "tool": name, "critical": False} for name in ("tail", "head", "long", "deep")]
    async with rerail.Engine("memory://", (long, deep), {"tools": {"shell": shell}}) as engine:
        result = await engine.run({"steps": steps})
        found.add(repr(await engine.events(result.run_id)))
    pieces = [KEY[:5], KEY[-5:]]
    assert not [piece for piece in pieces for history in found if piece in history]


async def test_a_secret_that_was_rotated_is_learnt_when_it_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """SECURITY: `{env.NAME}` is filled with every call; its new value is redacted from then on."""

    @rerail.tool
    def rotate() -> str:
        monkeypatch.setenv("ROTATES", "the-second-value")
        return "done"

    monkeypatch.setenv("ROTATES", "the-first-value")
    shell = {"say": {"argv": ["sh", "-c", "echo $K"], "env": {"K": "{env.ROTATES}"}, "effect": "read"}}
    steps = [
        {"id": "one", "tool": "say"},
        {"id": "rotate", "tool": "rotate", "needs": ["one"]},
        {"id": "two", "tool": "say", "needs": ["rotate"]},
    ]
    async with rerail.Engine("memory://", [rotate], {"tools": {"shell": shell}}) as engine:
        result = await engine.run({"steps": steps})
    assert [result.steps[name].output["stdout"] for name in ("one", "two")] == ["***\n", "***\n"]
