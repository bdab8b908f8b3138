"""Who may ask, and how much (I4): the gate of the server, tried from outside."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from tests.server.web import STEPS, Place, Web, rested, serving, started, stream

from rerail.server.security import AllowedHosts, host_name
from rerail.server.state import ServerState

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """A server with a token and small limits."""
    limits = {"RERAIL_SERVER_MAX_BODY": "20000", "RERAIL_SERVER_MAX_READERS": "3"}
    with serving(Place(tmp_path_factory.mktemp("guarded")), token="correct horse", **limits) as found:
        yield found


@pytest.mark.parametrize("words", [("0.0.0.0:0",), ("[::]:0",), ("--expose",)])
def test_other_machines_are_served_only_with_a_token(tmp_path: Path, words: tuple[str, ...]) -> None:
    """I4: a public address without a token is refused before anything listens."""
    place = Place(tmp_path)
    refused = place.rerail("serve", *words, code=2)
    assert refused["error"]["code"] == "USAGE" and "RERAIL_TOKEN" in refused["error"]["hint"]
    assert place.rerail("serve", "nonsense", code=2)["error"]["code"] == "USAGE"


async def test_a_public_address_with_a_token_is_served(tmp_path: Path) -> None:
    """I4: by its address and by this machine's name, to whoever knows the token."""
    with serving(Place(tmp_path), "--expose", token="t" * 32) as web:
        async with web.client() as client:
            assert (await client.get("/runs")).status_code == 200
            port = httpx.URL(web.url).port
            named = await client.get("/runs", headers={"host": f"{socket.gethostname()}:{port}"})
            assert named.status_code == 200
            assert (await client.get("/runs", headers={"host": "rebound.example"})).status_code == 421
            assert "0.0.0.0" not in web.url, "that is not an address that anybody could open"


@pytest.mark.parametrize("said", ["", "Bearer", "Bearer wrong", "Basic correct horse", "Bearer correct hors\xe9"])
async def test_a_wrong_token_is_no_token(web: Web, said: str) -> None:
    """I4: 401 for every way to have it wrong, on every route but the health check."""
    async with httpx.AsyncClient(base_url=web.url) as client:
        headers = {"authorization": said.encode("latin-1")} if said else {}
        for path in ("api/v1/runs", "api/v1/stream", "api/v1/tools", "openapi.json", "api/v1/nothing", "api/v2"):
            answer = await client.get(path, headers=headers)  # type: ignore[arg-type]
            assert answer.status_code == 401 and answer.json()["code"] == "UNAUTHORIZED", path
            assert answer.headers["www-authenticate"] == "Bearer"
        posted = await client.post("api/v1/runs", json={"plan": {"steps": STEPS}}, headers=headers)  # type: ignore[arg-type]
        assert posted.status_code == 401
        assert (await client.get("api/v1/health")).json()["ok"] is True
        chinese = await client.get("api/v1/runs?lang=zh", headers={**headers, "accept-language": "en"})  # type: ignore[arg-type]
        assert "令牌" in chinese.json()["detail"]
        assert (await client.get(f"api/v1/runs?token={web.token}")).status_code == 401  # addresses end up in logs


def test_tokens_are_compared_whole() -> None:
    """I4: nothing that merely begins right, ends right or is empty."""

    def known(said: str, token: str = "abc") -> bool:
        return ServerState(cast("Any", SimpleNamespace(internals=None)), token=token).caller(said) is not None

    assert known("abc") and known("é", "é")
    assert not any(known(word) for word in ("", "ab", "abcd", "ABC", "\udcff"))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1"]
)
async def test_a_foreign_name_does_not_lead_here(web: Web, host: str) -> None:
    """I4: a page elsewhere whose name was made to lead here (DNS rebinding) gets nothing, not even the page."""
    async with httpx.AsyncClient(base_url=web.url, headers=web.headers) as client:
        for path in ("", "api/v1/health", "api/v1/runs", "socket.io/?EIO=4&transport=polling"):
            answer = await client.get(path, headers={"host": host})
            assert answer.status_code == 421 and answer.json()["code"] == "HOST_FOREIGN", path


async def test_a_request_names_one_host(web: Web) -> None:
    """I4: none, or two, are no name at all."""
    where = httpx.URL(web.url)
    for lines in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        reader, writer = await asyncio.open_connection(where.host, where.port)
        writer.write(b"GET /api/v1/health HTTP/1.1\r\n" + lines + b"\r\n")
        status = (await reader.readline()).split()[1]
        assert status in (b"400", b"421")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "file://"]
)
async def test_a_foreign_page_is_refused(web: Web, origin: str) -> None:
    """I4: CORS is closed: another origin gets no answer, nor the headers that would let it read one."""
    async with web.client() as client:
        for method, path in (("GET", "/runs"), ("POST", "/runs"), ("OPTIONS", "/runs")):
            answer = await client.request(method, path, headers={"origin": origin})
            assert answer.status_code == 403 and answer.json()["code"] == "ORIGIN_FOREIGN"
            assert "access-control-allow-origin" not in answer.headers
        own = await client.get("/runs", headers={"origin": web.url.rstrip("/")})
        assert own.status_code == 200 and "access-control-allow-origin" not in own.headers


async def test_allowed_names_and_pages_are_let_in(tmp_path: Path) -> None:
    """Section 11: server.allow_hosts and server.allow_origins bite."""
    environ = {
        "RERAIL_SERVER_ALLOW_HOSTS": '["runs.example"]',
        "RERAIL_SERVER_ALLOW_ORIGINS": '["https://board.example"]',
    }
    with serving(Place(tmp_path), **environ) as web:
        async with web.client(host="runs.example", origin="https://board.example") as client:
            assert (await client.get("/runs")).status_code == 200
            assert (await client.get("/runs", headers={"origin": "https://runs.example"})).status_code == 200
            assert (await client.get("/runs", headers={"origin": "https://other.example"})).status_code == 403


async def test_a_body_has_a_limit(web: Web) -> None:
    """I4: by what it says of its size, and by what really comes."""
    async with web.client() as client:
        large = b'{"plan": "' + b"x" * 30_000 + b'"}'
        said = await client.post("/runs", content=large, headers={"content-type": "application/json"})
        assert said.status_code == 413 and said.json()["code"] == "BODY_TOO_LARGE"

        async def pieces() -> object:
            for _ in range(30):
                yield b"x" * 1000

        came = await client.post("/runs", content=pieces(), headers={"content-type": "application/json"})  # type: ignore[arg-type]
        assert came.status_code == 413 and came.json()["code"] == "BODY_TOO_LARGE"


async def test_streams_have_a_limit(web: Web) -> None:
    """I4: one too many is refused, and a place is free again once somebody leaves."""
    async with web.client() as client:
        async with stream(client, "/stream"), stream(client, "/stream"), stream(client, "/stream"):
            refused = await client.get("/stream")
            assert refused.status_code == 503 and refused.json()["code"] == "TOO_MANY_READERS"
            assert refused.headers["retry-after"]
        for _ in range(200):  # leaving takes a moment
            if not await _busy(client):
                break
            await asyncio.sleep(0.05)
        else:
            raise AssertionError("no place became free")


async def _busy(client: httpx.AsyncClient) -> bool:
    async with client.stream("GET", "/stream") as response:
        return response.status_code != 200


async def test_answers_say_what_a_browser_must_not_do(web: Web) -> None:
    """I4: no inline script, no frame, no sniffing, no cookies; data is neither shown nor kept."""
    async with httpx.AsyncClient(base_url=web.url, headers=web.headers) as client:
        page, data = await client.get(""), await client.get("api/v1/runs")
        policy = page.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy and "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy and "connect-src 'self'" in policy
        assert "sandbox" in data.headers["content-security-policy"] and data.headers["cache-control"] == "no-store"
        strange = [{"authorization": "wrong"}, {"host": "evil.example"}, {"origin": "https://evil.example"}]
        refused = [await client.get("api/v1/runs", headers=headers) for headers in strange]
        assert [answer.status_code for answer in refused] == [401, 421, 403]
        assert all("sandbox" in answer.headers["content-security-policy"] for answer in refused)
        for answer in (page, data, await client.get("api/v1/nothing"), *refused):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY" and "set-cookie" not in answer.headers
            assert "server" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "../tools.py",
        "%2e%2e/tools.py",
        "..%2ftools.py",
        "assets/../../app.py",
        "app.py",
        "/etc/passwd",
        "a\\..\\b",
        ".env",
    ],
)
async def test_no_path_leads_out_of_the_page(web: Web, path: str) -> None:
    """I4: a path is the name of a file of the build, and nothing else."""
    where = httpx.URL(web.url)
    reader, writer = await asyncio.open_connection(where.host, where.port)
    head = f"GET /{path} HTTP/1.1\r\nHost: {where.host}:{where.port}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    assert "rerail.tool" not in answer and "root:" not in answer and "import " not in answer
    # An address that looks like a view of the page is answered with the page itself, where it is built.
    page = path == "/etc/passwd" and "content-type: text/html" in answer.lower() and '<div id="root">' in answer
    assert answer.split()[1] in ("404", "400") or page, answer[:200]


def test_names_are_told_apart() -> None:
    """I4: addresses are no names that could be made to lead here; ports and brackets are no disguise."""
    local = AllowedHosts("127.0.0.1", ["runs.example:443"])
    assert all(map(local.fits, ("127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:80", "127.0.0.9", "runs.example")))
    assert not any(map(local.fits, ("192.168.0.1", "evil.example", "", "localhost.evil", "::", "[", "127.0.0.1@evil")))
    public = AllowedHosts("0.0.0.0")
    assert public.fits("192.168.0.1:80") and public.fits(socket.gethostname()) and not public.fits("evil.example")
    assert host_name("[::1]:80") == "::1" and host_name("A.b:1") == "a.b"


async def test_shell_tools_are_offered_if_the_server_was_told_so(tmp_path: Path) -> None:
    """I4: --allow shell, or server.allow."""
    place = Place(tmp_path)
    (tmp_path / "rerail.toml").write_text(
        '[tools.shell]\nhello = ["echo", "hello"]\n[tools.http]\nget = "http://127.0.0.1:9/"\n'
    )
    with serving(place, "--allow", "shell") as web:
        async with web.client() as client:
            run = await started(client, {"id": "s", "tool": "hello"})
            assert (await rested(client, run))["steps"]["s"]["output"]["stdout"].strip() == "hello"
            assert (await client.get("/tools")).json()["withheld"] == [{"name": "get", "kind": "http"}]
            shown = {row["key"]: row["value"] for row in (await client.get("/settings")).json()["settings"]}
            assert "hello" in shown["tools.shell"] and "get" in shown["tools.http"], "as they were given"
    with serving(place, RERAIL_SERVER_ALLOW='["http", "shell"]') as web:
        async with web.client() as client:
            assert (await client.get("/tools")).json()["withheld"] == []


def test_one_document_says_where_it_serves(tmp_path: Path) -> None:
    """I7: `--json` prints the address, and whether there is a token; never the token itself."""
    place = Place(tmp_path)
    process = place.spawn("serve", "0", "--json", RERAIL_TOKEN="do not print me")
    assert process.stdout is not None and process.stderr is not None
    said = ""
    while not said.rstrip().endswith("}"):
        said += process.stdout.readline()
    process.terminate()
    rest = "".join(process.communicate(timeout=20))
    assert re.search(r'"url": "http://127.0.0.1:\d+/"', said) and '"token": true' in said
    assert "do not print me" not in said + rest


async def test_a_page_that_may_can_use_the_api_from_elsewhere(tmp_path: Path) -> None:
    """I4: the browser's question before the request is answered without the token; nobody else's is."""
    environ = {"RERAIL_SERVER_ALLOW_ORIGINS": '["https://board.example"]'}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with serving(Place(tmp_path), token="t" * 32, **environ) as web:
        async with httpx.AsyncClient(base_url=web.url) as client:
            may = await client.options("api/v1/runs", headers={"origin": "https://board.example", **asks})
            assert may.status_code == 204
            assert may.headers["access-control-allow-origin"] == "https://board.example"
            assert "authorization" in may.headers["access-control-allow-headers"]
            other = await client.options("api/v1/runs", headers={"origin": "https://elsewhere.example", **asks})
            assert other.status_code == 403 and "access-control-allow-origin" not in other.headers
        async with web.client(origin="https://board.example") as client:
            read = await client.get("/runs")
            assert read.status_code == 200
            assert read.headers["access-control-allow-origin"] == "https://board.example"
            assert read.headers["cross-origin-resource-policy"] == "cross-origin"
        async with web.client() as client:
            assert "access-control-allow-origin" not in (await client.get("/runs")).headers


def test_a_blank_token_is_none(tmp_path: Path) -> None:
    """I4: nobody is let in from other machines by a space."""
    refused = Place(tmp_path).rerail("serve", "0.0.0.0:0", code=2, RERAIL_TOKEN="  ")
    assert refused["error"]["code"] == "USAGE"


def test_what_follows_an_address_in_brackets_is_no_disguise() -> None:
    """I4: only a port may."""
    assert host_name("[::1]:80") == host_name("[::1]") == "::1"
    assert not AllowedHosts("127.0.0.1").fits("[::1]evil.example")
    assert not AllowedHosts("127.0.0.1").fits("[::1]:80.evil.example")


async def test_a_place_that_is_no_number_is_no_place(web: Web) -> None:
    """I1: whatever a reader says it saw last, it is answered."""
    async with web.client() as client:
        run = await started(client, *STEPS)
        await rested(client, run)
        for said in ("9" * 5000, "-1", "x", "٣"):
            async with stream(
                client, f"/runs/{run}/stream?until_rest=true", **{"last-event-id": said.encode()}
            ) as seen:  # type: ignore[arg-type]
                assert [event.ident async for event in seen if event.ident][:1] == ["1"]
