"""The scenario: every interface is asked for everything, once, in an order that does not change."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from tests.recorded.over_http import over_http
from tests.recorded.over_mcp import over_mcp
from tests.recorded.plain import Plain
from tests.recorded.runs import PLANS, one, start
from tests.recorded.world import Answered, Place

from rerail.testing import ModelServer

Answers = dict[str, dict[str, Any]]


def play(folder: Path) -> Answers:
    """Everything that is recorded: file → answer → what was answered."""
    place = Place(folder)
    place.prepare()
    told: Answers = {name: {} for name in ("cli", "events", "text", "http", "streams", "sockets", "mcp")}
    with place.inside():
        _Typed(place, told).everything()
        asyncio.run(over_http(place, told, Plain(folder, place.runs)))
        asyncio.run(over_mcp(place, told, Plain(folder, place.runs)))
    return told


class _Typed:
    """What is typed."""

    def __init__(self, place: Place, told: Answers) -> None:
        self.place, self.told = place, told
        self.ids: dict[str, str] = {}

    def everything(self) -> None:
        """All commands."""
        for name in PLANS:
            self._keep(f"run: {name}", start(self.place, name))
        self._act()
        self._with_a_model()
        self._processes()
        for name in list(dict.fromkeys(self.place.runs.values())):
            self._look(name)
        self._setup()

    # -- Keeping ------------------------------------------------------------------------------------------------------

    def _keep(self, name: str, answered: Answered, into: str = "cli") -> None:
        plain = Plain(self.place.folder, self.place.runs)
        said: dict[str, Any] = {"code": answered.code, "out": plain(answered.json)}
        self._put(into, plain.text(name), said)

    def _put(self, file: str, name: str, said: Any) -> None:
        assert name not in self.told[file], name
        self.told[file][name] = said

    def json(self, *words: str, into: str = "cli") -> Any:
        """A command with `--json`."""
        answered = self.place(*words, "--json")
        self._keep(" ".join(words), answered, into)
        return answered.json

    def text(self, *words: str) -> None:
        """A command for people."""
        answered = self.place(*words)
        plain = Plain(self.place.folder, self.place.runs)
        said = {"code": answered.code, "out": plain.lines(answered.out), "err": plain.lines(answered.err)}
        self._put("text", plain.text(" ".join(words)), said)

    def of(self, name: str) -> str:
        """A run's id."""
        return next(run for run, called in self.place.runs.items() if called == name)

    # -- Commands that act --------------------------------------------------------------------------------------------

    def _act(self) -> None:
        of, place = self.of, self.place
        self.json("confirm", of("waits"), "--dry-run")
        self.json("add", of("grows"), self._steps("more", one("m", needs=["a"])))
        self.json("add", of("grows"), self._steps("bad", one("x", "nothing")))
        self.json("confirm", of("grows"), "b", "--args", '{"amount": 8}', "--yes")
        self.json("confirm", of("is refused"), "--refuse")
        self.json("confirm", of("is refused"))
        self.json("pause", of("is paused"))
        self.json("show", of("is paused"))
        self.json("resume", of("is paused"))
        self.json("cancel", of("is cancelled"), "--reason", "no need")
        self.json("cancel", of("is cancelled"))
        self.json("resolve", of("is resolved"), "a", "--succeeded", '{"ok": 1}', "--dry-run")
        self.json("resolve", of("is resolved"), "a", "--succeeded", '{"ok": 1}')
        self.json("resolve", of("is not resolved"), "a", "--failed")
        self.json("skip", of("is skipped"), "a", "--dry-run")
        self.json("skip", of("is skipped"), "a", "--reason", "not this time")
        self.json("repair", of("is repaired"), "a", "--args", '{"source": "ds_1"}', "--dry-run")
        self.json("repair", of("is repaired"), "a", "--args", '{"source": "ds_1"}')
        self.json("retry", of("fails"), "--dry-run")
        self.text("retry", of("fails"), "--dry-run")
        self.text("retry", of("is resolved"), "--clean", "--dry-run")
        self.json("retry", of("is resolved"), "--clean", "--dry-run")
        self.json("retry", of("has stages"), "--stage", "check", "--dry-run")
        self.json("retry", of("has stages"), "--wait")
        self._again("retry", of("fails"), note="fails again")
        (place.folder / "go").write_text("gone")
        self._again("retry", of("fails"), note="succeeds")
        self.json("retry", of("fails for good"))
        self.json("retry", of("fails for good"), "--force", "--step", "a")
        self.json("retry", of("succeeds"))
        self._again("retry", of("is renewed"), "--force", "--step", "a", note="the same again")
        (place.folder / "note").write_text("two")
        self._again("retry", of("is renewed"), "--force", "--step", "a", note="another answer")
        self.json("retry", "--all-failed", "--dry-run")

    def _again(self, *words: str, note: str) -> None:
        self._keep(f"{' '.join(words)} ({note})", self.place(*words, "--json"))

    def _steps(self, name: str, *steps: dict[str, Any]) -> str:
        (self.place.folder / f"{name}.json").write_text(json.dumps(list(steps)))
        return f"{name}.json"

    # -- A model ------------------------------------------------------------------------------------------------------

    def _with_a_model(self) -> None:
        thought = {"category": "parameter_error", "root_cause": "no such source", "recoverable": True, "confidence": 80}
        good = {"steps": [one("a", args={"value": 1}), one("b", args={"value": "${a}"})], "reason": "in order"}
        bad = {"steps": [one("a", "nothing", args={})], "reason": "guessed"}
        yes, no = {"complete": True, "reason": ""}, {"complete": False, "reason": "c is missing", "missing": ["c"]}
        new = {
            "plan": {"steps": [one("z"), one("a", "upload", args={"source": "ds_1"}, needs=["z"])]},
            "reason": "another way",
        }
        mended = {"step": one("a", "upload", args={"source": "ds_1"}), "reason": "the known one"}
        source = one("a", "upload", args={"source": "ds_0"})
        told: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
            ("is planned", {"plan": [bad, good]}, ("run", "--objective", "count to two")),
            ("reflects", {"reflect": [{**thought, "suggestion": {"source": "ds_1"}}]},
             ("run", self._plan("reflects", source))),
            ("is mended", {"reflect": [thought] * 9, "repair": [mended]}, ("run", self._plan("is_mended", source))),
            ("is replanned", {"reflect": [thought] * 9, "repair": [{"step": None, "reason": "no"}], "replan": [new]},
             ("run", self._plan("is_replanned", source))),
            ("is replanned badly", {"reflect": [thought] * 9, "repair": [{"step": None, "reason": "no"}],
                                    "replan": [{"plan": bad, "reason": "guessed"}] * 3},
             ("run", self._plan("is_replanned_badly", source))),
            ("is judged", {"judge": [no]},
             ("run", self._plan("is_judged", one("a")), "--set", "evaluation.shortcut=false")),
        ]  # fmt: skip
        for name, script, words in told:
            with ModelServer({**script, "judge": [*script.get("judge", ()), *[yes] * 3]}) as server:
                model = [
                    f"model.base_url={server.base_url}",
                    "model.name=m",
                    "model.retries=0",
                    "reflection.mode=model",
                ]
                answered = self.place(*words, *(word for one_ in model for word in ("--set", one_)), "--json")
            self.place.runs[answered.json["run_id"]] = name
            self._keep(f"run: {name}", answered)
        with ModelServer({"plan": [bad, good]}) as server:
            model = [f"model.base_url={server.base_url}", "model.name=m", "model.retries=0"]
            options = [word for one_ in model for word in ("--set", one_)]
            self._keep("plan", self.place("plan", "count to two", *options, "--json"))
            self._keep("plan (no answer)", self.place("plan", "count to two", *options, "--json"))

    def _plan(self, name: str, *steps: dict[str, Any]) -> str:
        return self.place.plan(name, *steps)

    # -- Processes ----------------------------------------------------------------------------------------------------

    def _processes(self) -> None:
        died = self.place.process("run", self._plan("is_interrupted", one("a"), one("b", "die", needs=["a"])))
        assert died.code == 9, died
        run = self.place("ls", "--json").json[0]["run_id"]
        self.place.runs[run] = "is interrupted"
        self.json("show", run)
        self.text("show", run)
        self.json("resume", run)
        queued = self.place("start", self._plan("is_queued", one("a")), "--queue", "--json")
        self.place.runs[queued.json["run_id"]] = "is queued"
        self._keep("start --queue", queued)
        self.json("worker", "--until-idle")
        begun = self.place("start", self._plan("is_detached", one("a")), "--wait", "--json")
        self.place.runs[begun.json["run_id"]] = "is detached"
        self._keep("start --wait", begun)
        child = self.place("run", self._plan("follows", one("a")), "--parent", self.of("succeeds"), "--json")
        self.place.runs[child.json["run_id"]] = "follows"
        self._keep("run --parent", child)

    # -- Commands that look -------------------------------------------------------------------------------------------

    def _look(self, name: str) -> None:
        run = self.of(name)
        self.json("show", run) if name not in ("is paused", "is interrupted") else self._again(
            "show", run, note="in the end"
        )
        self.json("why", run)
        self.json("logs", run, into="events")
        self.json("graph", run)
        self.json("artifacts", run)
        for command in ("why", "logs", "graph"):
            self.text(command, run)
        if name != "is interrupted":
            self.text("show", run)

    def _setup(self) -> None:
        of, place = self.of, self.place
        self.json("show", of("succeeds"), "--output", "a")
        self.json("why", of("heals"), "a")
        self.text("why", of("heals"), "a")
        self.json("logs", of("heals"), "--tail", "2")
        self.json("logs", of("heals"), "--step", "a")
        self.json("logs", of("heals"), "--follow")
        self.json("watch", of("heals"))
        self.json("graph", of("heals"), "--mermaid")
        self.json("graph", of("heals"), "--svg")
        self.text("graph", of("heals"), "--mermaid")
        self.json("graph", "succeeds.json")
        self.json("artifacts", of("succeeds"), "a")
        self.json("artifacts", of("succeeds"), "none")
        self.json("replay", of("heals"), "--set", "retry.max_retries=0")
        self.text("replay", of("heals"), "--set", "retry.max_retries=0")
        self.json("replay", of("heals"), "--set", "store.url=x")
        self.json("ls")
        self.json("ls", "--status", "failed")
        self.text("ls")
        self.json("check", "succeeds.json")
        self.json("check", place.plan("bad", one("a", "okk"), one("b", needs=["z"])))
        self.text("check", "bad.json")
        self.json("run", "bad.json")
        self.json("tools")
        self.text("tools")
        self._settings()
        self.json("memory")
        self.json("memory", "--clear")
        self.json("prompts", "show", "judge")
        self.json("prompts", "eject", "mine")
        self.json("doctor")
        self.json("show", "nothing")
        self.json("skip", of("succeeds"), "zz")
        self.json("nonsense")
        self.json("ls", "--nonsense")
        self.json("run")
        self._again("doctor", "--repair", note="nothing to mend")
        self.json("backup", "copy.db")
        self._again("backup", "copy.db", note="there already")
        self.json("store", "copy", "copy.db", "other.db")
        self.json("prune", "--older-than", "30d", "--dry-run")
        shutil.copy(place.folder / "copy.db", place.folder / "pruned.db")
        self.json("prune", "--older-than", "0s", "--yes", "--store", "pruned.db")

    def _settings(self) -> None:
        """The settings by their names: more of them may come."""
        answered = self.place("config", "--json")
        rows = {row["key"]: row for row in answered.json}
        self._keep("config", Answered(answered.code, json.dumps(rows), ""))
