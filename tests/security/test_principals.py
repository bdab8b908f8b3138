"""Named tokens, roles, gates with names, four eyes, and the audit: over HTTP and on the command line (I13)."""

from __future__ import annotations

import json
import re
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Here, Place, here, place  # noqa: F401
from tests.server.web import Place as ServedPlace
from tests.server.web import Web, rested, serving, started

import rerail
from rerail.errors import Refused
from rerail.settings.principals import INCLUDED, Principal, digest_of, named, new_token
from rerail.settings.tables import TokenTable

pytestmark = pytest.mark.anyio

TOKENS = {name: new_token() for name in ("reader", "actor", "approver", "boss", "old")}
ROLES = {"reader": ["read"], "actor": ["act"], "approver": ["approve"], "boss": ["admin"], "old": ["admin"]}


def settings() -> str:
    """A `rerail.toml` with these tokens; one has expired."""
    rows = [
        f'[server.tokens.{name}]\ndigest = "{digest}"\nroles = {json.dumps(ROLES[name])}\n'
        for name, (_, digest) in TOKENS.items()
    ]
    return "".join(rows) + 'expires = "2001-01-01"\n'


def as_(name: str) -> dict[str, str]:
    """The headers of a caller, who also claims another name."""
    return {"authorization": f"Bearer {TOKENS[name][0]}", "x-rerail-by": "somebody else"}


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with named tokens, which records reads of artifacts too."""
    served = ServedPlace(tmp_path_factory.mktemp("named"))
    (served.folder / "rerail.toml").write_text(settings())
    with serving(served, RERAIL_SERVER_AUDIT_READS="true") as found:
        yield found


# -- Tokens -----------------------------------------------------------------------------------------------------------


def test_a_token_is_known_by_its_digest() -> None:
    """I13: whole, in time, and nothing else; what a role includes."""
    table = {"a": TokenTable(TOKENS["actor"][1], ("act",)), "b": TokenTable(TOKENS["old"][1], ("admin",), "2001-01-01")}
    assert named(table, TOKENS["actor"][0], 1e9) == Principal("a", ("act",))
    assert named(table, TOKENS["old"][0], 1e8) == Principal("b", ("admin",)), "before its end"
    assert named(table, TOKENS["old"][0], 1e9) is None
    for wrong in ("", TOKENS["actor"][0][:-1], TOKENS["actor"][1], "\udcff", TOKENS["reader"][0]):
        assert named(table, wrong, 1e9) is None
    roles = ("read", "act", "approve", "events", "admin")
    assert {role for role in roles if Principal("x", ("approve",)).may(role)} == {"read", "approve"}
    assert all(Principal("x", ("admin",)).may(role) for role in INCLUDED["admin"])
    assert digest_of("x") != digest_of("y") and TOKENS["boss"][0] not in TOKENS["boss"][1]


async def test_each_role_does_what_it_is_for(web: Web) -> None:
    """I13, I4: who may read, act and approve; a token that is old, unknown or missing is none."""
    gate = {"id": "pay", "tool": "echo", "confirm": "Pay?"}
    async with web.client() as client:
        assert (await client.get("/runs")).status_code == 401
        assert (await client.get("/runs", headers=as_("old"))).status_code == 401
        assert (await client.get("/runs", headers=as_("reader"))).status_code == 200
        body = {"plan": {"steps": [gate]}}
        refused = await client.post("/runs", json=body, headers=as_("reader"))
        assert (refused.status_code, refused.json()["code"]) == (403, "ROLE_NEEDED")
        run = (await client.post("/runs", json=body, headers=as_("actor"))).json()["run_id"]
        client.headers.update(as_("actor"))
        await rested(client, run, "waiting")
        for caller, status in (("reader", 403), ("actor", 403), ("approver", 202)):
            answer = await client.post(f"/runs/{run}/confirm", json={"step": "pay"}, headers=as_(caller))
            assert answer.status_code == status, (caller, answer.text)
        dry = await client.post(f"/runs/{run}/retry", json={"dry_run": True, "force": True}, headers=as_("reader"))
        assert dry.status_code != 403, "a look at what would be needs no right to do it"
        assert (await client.post(f"/runs/{run}/cancel", headers=as_("approver"))).status_code == 403
        assert (await client.request("DELETE", "/memory", headers=as_("actor"))).status_code == 403
        assert (await client.request("DELETE", "/memory", headers=as_("boss"))).status_code == 200
        await rested(client, run)
        await client.get(f"/runs/{run}/artifacts/pay", headers=as_("reader"))
        said = (await client.get(f"/audit?run={run}", headers=as_("reader"))).json()["entries"]
    told = [(row["action"], row["by"], row["proof"], row["outcome"]) for row in said]
    assert told == [
        ("start", "actor", "token", ""),
        ("confirm", "reader", "token", "ROLE_NEEDED"),
        ("confirm", "actor", "token", "ROLE_NEEDED"),
        ("confirm", "approver", "token", ""),
        ("cancel", "approver", "token", "ROLE_NEEDED"),
        ("read", "reader", "token", ""),
    ]
    assert {row["via"] for row in said} == {"http"}


async def test_a_gate_with_names_is_answered_by_one_of_them(web: Web) -> None:
    """I13: a name of a token or a role; the page's general rights are not enough, and nobody gets in by a header."""
    async with web.client() as client:
        client.headers.update(as_("boss"))
        run = await started(client, {"id": "pay", "tool": "echo", "confirm": {"text": "Pay?", "by": ["approver"]}})
        await rested(client, run, "waiting")
        refused = await client.post(f"/runs/{run}/confirm", json={"step": "pay"}, headers=as_("boss"))
        assert (refused.status_code, refused.json()["code"]) == (403, "APPROVER_NEEDED")
        refusal = await client.post(f"/runs/{run}/confirm", json={"step": "pay", "refuse": True}, headers=as_("boss"))
        assert refusal.json()["code"] == "APPROVER_NEEDED"
        repair = {"step": "pay", "needs": [], "args": {"value": 2}}
        assert (await client.post(f"/runs/{run}/repair", json=repair, headers=as_("boss"))).status_code == 202
        assert (await client.post(f"/runs/{run}/confirm", json={"step": "pay"}, headers=as_("boss"))).status_code == 403
        answer = await client.post(f"/runs/{run}/confirm", json={"step": "pay"}, headers=as_("approver"))
        assert answer.status_code == 202
        assert (await rested(client, run))["status"] == "completed"


async def test_four_eyes_see_what_two_did(web: Web) -> None:
    """I13: who changed the call does not agree to it, in one go or one after the other; another person does."""
    gate = {"text": "Pay?", "four_eyes": True}
    async with web.client() as client:
        client.headers.update(as_("boss"))
        run = await started(client, {"id": "pay", "tool": "echo", "args": {"value": 1}, "confirm": gate})
        await rested(client, run, "waiting")

        async def agree(caller: str, **more: Any) -> str:
            answer = await client.post(f"/runs/{run}/confirm", json={"step": "pay", **more}, headers=as_(caller))
            return str(answer.json().get("code", answer.status_code))

        assert await agree("boss", args={"value": 2}) == "FOUR_EYES"
        change = {"step": "pay", "args": {"value": 2}}
        assert (await client.post(f"/runs/{run}/repair", json=change, headers=as_("boss"))).status_code == 202
        await rested(client, run, "waiting")
        assert await agree("boss") == "FOUR_EYES"
        assert await agree("approver") == "202"
        assert (await rested(client, run))["steps"]["pay"]["output"] == 2


# -- On the command line ----------------------------------------------------------------------------------------------


def test_tokens_are_added_listed_and_revoked(place: Place, here: Here) -> None:  # noqa: F811
    """I13: shown once, stored as a digest; what else stands in the file stays as it is written."""
    toml = place.folder / "rerail.toml"
    toml.write_text("# ours\n[run]\nconcurrency = 3 # three\n")
    toml.chmod(0o640)
    made = here("token", "add", "ops", "--role", "approve", "--role", "act", "--expires", "30d", "--json", code=0).json
    here("token", "add", "the.bot", code=0)
    text = toml.read_text()
    assert made["token"] not in text and digest_of(made["token"]) in text and text.startswith("# ours\n[run]\n")
    assert stat.S_IMODE(toml.stat().st_mode) == 0o640
    listed = {row["name"]: row for row in here("token", "--json", code=0).json}
    assert listed["ops"]["roles"] == ["approve", "act"] and listed["the.bot"]["roles"] == ["read"]
    assert not listed["ops"]["expired"] and listed["ops"]["expires"] > time.strftime("%Y-%m-%d")
    assert "ops" in here("token", code=0).out
    assert here("token", "add", "ops").code == 2 and here("token", "add", "no name").code == 2
    assert here("token", "revoke", "nobody").code == 2
    here("token", "revoke", "ops", code=0)
    assert "ops" not in toml.read_text() and "the.bot" in toml.read_text() and "# three" in toml.read_text()
    here("token", "revoke", "the.bot", code=0)
    assert toml.read_text().rstrip() == "# ours\n[run]\nconcurrency = 3 # three"
    assert here("token", code=0).out.strip()


def test_a_person_shows_a_token_on_the_command_line(
    place: Place,  # noqa: F811
    here: Here,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I13: RERAIL_TOKEN names who acts; without it user and host are recorded, as a claim."""
    (place.folder / "rerail.toml").write_text(settings())
    gate = {"text": "Pay?", "by": ["approve"]}
    run = here.run({"id": "a", "tool": "ok", "confirm": gate}, code=3)
    refused = here("confirm", run, "--yes")
    assert refused.code == 2 and "approve" in refused.err and "RERAIL_TOKEN" in refused.err
    monkeypatch.setenv("RERAIL_TOKEN", "rrl_of-nobody")
    assert here("confirm", run, "--yes").code == 2
    monkeypatch.setenv("RERAIL_TOKEN", TOKENS["approver"][0])
    assert here("confirm", run, "--yes").code == 0
    rows = here("audit", run, "--json", code=0).json
    assert [(row["action"], row["proof"], row["refused"]) for row in rows] == [
        ("start", "", False), ("confirm", "", True), ("confirm", "", True), ("confirm", "token", False),
    ]  # fmt: skip
    assert re.fullmatch(r".+@.+", rows[0]["by"]) and rows[-1]["by"] == "approver"
    shown = here("audit", code=0).out
    assert "APPROVER_NEEDED" in shown and "claimed" in shown
    assert here("audit", "--by", "approver", "--json").json == rows[-1:]
    assert here("audit", "--refused", "--since", "1h", "--json").json == rows[1:3]
    assert here("audit", "--since", "soon").code == 2


async def test_a_name_that_a_program_gives_is_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """I13: the token in the environment proves the name that it belongs to, and no other."""
    monkeypatch.setenv("RERAIL_TOKEN", TOKENS["approver"][0])
    tokens = {"approver": {"digest": TOKENS["approver"][1], "roles": ["approve"]}}

    @rerail.tool
    def pay() -> int:
        return 1

    plan = {"steps": [{"id": "a", "tool": "pay", "confirm": {"by": ["approver"]}}]}
    async with rerail.Engine("memory://", [pay], {"server": {"tokens": tokens}}) as engine:
        run = (await engine.run(plan)).run_id
        with pytest.raises(Refused, match="approver"):
            await engine.confirm(run, "a", by="approver")
        await engine.confirm(run, "a")
        assert (await engine.wait(run)).success


def test_a_gate_is_read_from_a_plan(tmp_path: Path) -> None:
    """I13, P5: its parts are checked with the plan."""
    step = {"id": "a", "tool": "t", "confirm": {"text": "Pay ${b.sum}?", "by": "ops", "four_eyes": True}}
    plan = rerail.Plan.load({"steps": [{"id": "b", "tool": "t"}, step]})
    assert not plan.check() and plan.to_dict()["steps"][1]["confirm"] == {**step["confirm"], "by": ("ops",)}  # type: ignore[dict-item]
    for wrong in ({"by": 1}, {"four_eyes": "yes"}, {"bye": ["x"]}, 3):
        assert rerail.Plan.load({"steps": [{"id": "a", "tool": "t", "confirm": wrong}]}).check()
