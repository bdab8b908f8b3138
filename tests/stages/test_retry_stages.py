"""The staged task through the command line: each stage that fails, each file that rots, every way to retry (T1-T6)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stages.task import FILES, MAIN, PLAN, STEPS, TOOLS, Task

from rerail.kernel.events import RetryBegin
from rerail.kernel.stages import shown_status

Failed = Callable[[str], Task]

# Where a stage failed → the status that is shown until its first step starts, and the files that are kept.
TABLE: dict[str, tuple[str, list[str]]] = {
    "extracting": ("pending", []),
    "retrieving": ("awaiting_confirm", ["requirements.json"]),
    "generating": ("retrieving", ["requirements.json", "templates.json"]),
    "evaluating": ("completed", ["plan.json", "generation_result.json"]),
    "reflecting": ("completed", ["plan.json", "generation_result.json", "feedback.json"]),
    "curating": ("completed", ["plan.json", "generation_result.json", "reflection.json"]),
}
ORDER = list(STEPS)


@pytest.mark.parametrize("stage", TABLE)
def test_stages(failed: Failed, stage: str) -> None:
    """T2, T3, T12 `stages`: retried at the stage that failed; what is kept, put aside, not called again."""
    task = failed(stage)
    status, kept = TABLE[stage]
    before, target = task.calls(), task.last()
    shown = task("show", target, "--json", code=0).json
    assert (shown["status"], shown["failed_stage"]) == ("failed", stage)
    assert task.task_json()["status"] == ("failed" if stage in MAIN else "completed")
    for name in FILES[stage]:
        (task.workspace / name).write_text("half a fi")  # what the failed try had begun

    told = task("retry", task.run, "--wait", code=0 if stage != "extracting" else 3).out

    assert f"failed stage: {stage}" in told
    assert f"kept files: {', '.join(kept) or 'none'}" in told
    begin = next(i for i, r in enumerate(task.records(target), 1) if isinstance(r.event, RetryBegin))
    assert shown_status(task.state(target, upto=begin)) == status
    assert task.archived() == set(FILES[stage])
    if stage == "extracting":
        assert task("show", task.run, "--json").json["shown_status"] == "awaiting_confirm"
        task("confirm", task.run, "--wait", code=0)
    after = task.calls()
    again = {step for step in after if after[step] != before[step]}
    assert again == set(STEPS.values()) - {STEPS[done] for done in ORDER[: ORDER.index(stage)]}
    assert all(count == 1 + (STEPS[stage] == step) for step, count in after.items())
    assert all((task.workspace / name).exists() for names in FILES.values() for name in names)
    told_of = task.task_json()
    assert (told_of["status"], told_of["error"], told_of["failed_stage"]) == ("completed", None, None)
    assert (told_of["retry_count"], told_of["feedback_retry_count"]) == ((1, 0) if stage in MAIN else (0, 1))
    assert told_of["feedback_status"] == "completed"


# -- Files that rot -----------------------------------------------------------------------------------------------


def _changed(path: Path) -> None:
    data = json.loads(path.read_text())
    first = data if isinstance(data, dict) else data[0]
    key = next(key for key, value in first.items() if isinstance(value, str | int | float | list))
    value = first[key]
    first[key] = f"{value}!" if isinstance(value, str) else [*value, "more"] if isinstance(value, list) else value + 1
    path.write_text(json.dumps(data))


def _without_key(path: Path) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps([] if isinstance(data, list) else dict(list(data.items())[1:])))


ROT: dict[str, Callable[[Path], Any]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "missing key": _without_key,
    "not JSON": lambda path: path.write_text("objective: soon"),
    "deleted": Path.unlink,
    "digest changed": _changed,
    "schema violated": lambda path: path.write_text('{"objective": 7, "topics": "all", "title": 1}'),
}
# Which file rots, and where the task had failed before.
READ_BY = [
    ("requirements.json", "retrieving"), ("requirements.json", "generating"), ("templates.json", "generating"),
    ("plan.json", "evaluating"), ("generation_result.json", "evaluating"), ("feedback.json", "reflecting"),
    ("reflection.json", "curating"),
]  # fmt: skip


@pytest.mark.parametrize("rot", ROT)
@pytest.mark.parametrize(("name", "stage"), READ_BY)
def test_corrupt(failed: Failed, name: str, stage: str, rot: str) -> None:
    """T1, T3 `corrupt`: a kept file that is damaged puts the step that made it, and what follows, back to work."""
    task = failed(stage)
    maker = next(made for made, names in FILES.items() if name in names)
    good = (task.workspace / name).read_bytes()
    ROT[rot](task.workspace / name)

    asks = maker == "retrieving"  # it had succeeded, and so used its yes up (X10)
    told = task("retry", task.run, "--wait", "--lang", "zh", code=3 if asks else 0).out
    if asks:
        task("confirm", task.run, "--wait", code=0)

    verb = {
        "extracting": "提取",
        "retrieving": "检索",
        "generating": "生成",
        "evaluating": "评估",
        "reflecting": "反思",
    }
    assert f"⚠️  {name} 已损坏，将重新{verb[maker]}\n" in told
    assert (task.workspace / name).read_bytes() == good  # made again, the same
    again = ORDER.index(maker)
    counts = task.calls()
    # What came between saw the same inputs as before, and was kept; what failed ran.
    assert counts[STEPS[maker]] == 2
    assert counts[STEPS[stage]] == 2
    assert all(counts[STEPS[early]] == 1 for early in ORDER[:again])
    assert task.task_json()["status"] == "completed"
    assert task.task_json()["feedback_status"] == "completed"
    if maker in ("extracting", "retrieving", "generating"):
        assert f"{name} could not be kept: " in task("why", task.run).out


def test_nobody_agrees_to_a_file_that_was_changed(failed: Failed) -> None:
    """T1, T2: a yes is to what was made; what a person changed by hand is taken with --edit, or made again."""
    task = failed("extracting")
    task("retry", task.run, "--wait", code=3)
    file = task.workspace / "requirements.json"
    file.write_text(file.read_text().replace("12000", "9999"))
    refused = task("confirm", task.run, "--json", code=2).json["error"]
    assert refused["code"] == "FILE_DAMAGED"
    assert f"rerail confirm {task.run} --edit {file}" in refused["hint"]
    task("retry", task.run, "--step", "extract", "--force", "--wait", code=3)
    assert task.calls()["extract"] == 3
    file.write_text(file.read_text().replace("12000", "9999"))
    task("confirm", task.run, "--edit", str(file), "--wait", code=0)
    assert json.loads((task.workspace / "plan.json").read_text())["sections"][0]["budget"] == 3333
    assert "(with another requirements.json)" in task("why", task.run).out
    assert "(with another requirements.json)" in task("logs", task.run).out


def test_a_superseded_follow_up_is_over(failed: Failed) -> None:
    """T6: once its parent has completed again, the newer follow-up is the one; the old is refused, and not offered."""
    task = failed("evaluating")
    old = task.last()
    task("retry", task.run, "--force", "--stage", "generating", "--wait", code=0)
    assert task.last() != old
    refused = task("retry", old, "--json", code=2).json["error"]
    assert refused["code"] == "RUN_SUPERSEDED"
    assert task.run in refused["hint"]
    assert task("retry", "--all-failed", "--json", code=0).json == []


# -- Limits, force, starting over ---------------------------------------------------------------------------------


def test_limit_and_force(failed: Failed) -> None:
    """T4 `limit`, `force`: after three retries only --clean and --force go on, and force says what it passed."""
    task = failed("generating")
    for number in (1, 2, 3):
        told = task("retry", task.run, "--wait", "--lang", "zh", fail="generating", code=1).out
        assert f"  ✅ 重试次数: {number}/3\n" in told
    refused = task("retry", task.run, "--lang", "zh", code=2)
    assert refused.err == (
        "❌ 任务已达到最大重试次数 (3)\n"
        f"   - 使用 '/retry {task.run} --clean' 完全重新开始\n"
        f"   - 使用 '/retry {task.run} --force' 强制重试（忽略次数限制）\n"
    )
    refused = task("retry", task.run, "--json", code=2)
    assert refused.json["error"]["code"] == "RETRY_LIMIT"
    told = task("retry", task.run, "--wait", "--force", code=0).out
    assert "the retry limit was passed by --force" in told
    assert task.calls()["extract"] == 1


def test_permanent(tmp_path: Path) -> None:
    """T4 `permanent`: what cannot be mended by trying again is refused in words of its own; --force passes that."""
    task = Task(tmp_path / "it")
    task.begin(fail="generating: API密钥无效")
    refused = task("retry", task.run, "--lang", "zh", code=2)
    assert refused.err == "❌ 此错误不可重试: API密钥无效\n   请先修复配置问题\n"
    told = task("retry", task.run, "--wait", "--force", "--lang", "zh", code=0).out
    assert "⚠️  错误不可重试（--force 已忽略）" in told


@pytest.mark.parametrize("words", ["配置文件不存在", "Playbook不存在", "API密钥无效", "模型不存在", "权限不足"])
def test_errors_that_no_retry_mends(words: str) -> None:
    """T4, H6: the errors that are known not to go away are permanent."""
    from rerail.codes import Category
    from rerail.recovery.classifier import Evidence, classify
    from rerail.settings.loading import Settings

    assert classify(Evidence(words), Settings.load(None).patterns()) is Category.PERMANENT


def test_clean(failed: Failed) -> None:
    """T4 `clean`: asks first, keeps everything in a backup, starts over, and the count begins anew."""
    task = failed("generating")
    task("retry", task.run, "--wait", fail="generating", code=1)
    (task.workspace / "notes.txt").write_text("mine")
    before = task.contents()
    refused = task("retry", task.run, "--clean", "--json", code=2).json["error"]
    assert refused["code"] == "CONFIRM_NEEDED"
    assert task.contents() == before

    told = task("retry", task.run, "--clean", "--yes", "--wait", "--lang", "zh", code=3).out
    assert "📋 重试策略: 完全重试" in told
    assert "  ✅ 重试次数: 0/3" in told
    [begin] = [event for event in task.events(RetryBegin) if event.operation == "clean"]
    backup = Path(begin.backup)
    assert {path.name for path in backup.iterdir()} == {"requirements.json", "templates.json", "notes.txt"}
    assert not (task.workspace / "templates.json").exists()
    assert before <= task.contents()
    assert task("show", task.run, "--json").json["retries"] == 0
    task("confirm", task.run, "--wait", code=0)  # a clean start asks again
    assert task.calls()["extract"] == 2


def test_clean_of_a_follow_up_touches_nothing_else(failed: Failed) -> None:
    """T6: only what the follow-up made is started over; its parent's files stay."""
    task = failed("reflecting")
    plan = (task.workspace / "plan.json").stat().st_mtime_ns
    task("retry", task.run, "--clean", "--yes", "--wait", code=0)
    assert (task.workspace / "plan.json").stat().st_mtime_ns == plan
    assert task.calls() == {"extract": 1, "retrieve": 1, "generate": 1, "evaluate": 2, "reflect": 2, "curate": 1}
    backups = list((task.workspace / ".rerail" / "backup").rglob("*.json"))
    assert [path.name for path in backups] == ["feedback.json"]


def test_stage(failed: Failed) -> None:
    """T4: --stage goes on from there, and further back where the inputs are not valid; unknown ones are refused."""
    task = failed("generating")
    refused = task("retry", task.run, "--stage", "retreiving", "--json", code=2).json["error"]
    assert refused["code"] == "STAGE_UNKNOWN"
    assert "retrieving" in refused["hint"]
    (task.workspace / "requirements.json").write_text("{")
    told = task("retry", task.run, "--stage", "retrieving", "--wait", code=3).out
    assert "requirements.json cannot be kept" in told
    assert "from the stage extracting on" in told
    task("confirm", task.run, "--wait", code=0)
    assert task.calls() == {"extract": 2, "retrieve": 2, "generate": 2, "evaluate": 1, "reflect": 1, "curate": 1}


# -- Confirmation -------------------------------------------------------------------------------------------------


def waiting(tmp_path: Path) -> Task:
    """A task that waits for somebody to agree to its requirements."""
    task = Task(tmp_path / "it")
    task.folder.mkdir()
    task.run = task("run", PLAN, "--tools", TOOLS, "--json", code=3).json["run_id"]
    return task


def test_confirm(tmp_path: Path) -> None:
    """T2 `confirm`: waits as awaiting_confirm, is remembered on retry, and a retry before it points to confirm."""
    task = waiting(tmp_path)
    assert task("show", task.run, "--json").json["shown_status"] == "awaiting_confirm"
    assert task.task_json()["status"] == "awaiting_confirm"
    assert task("retry", task.run, "--json", code=2).json["error"]["code"] == "RUN_WAITS_CONFIRM"
    task("confirm", task.run, "--wait", fail="retrieving", code=1)
    task("retry", task.run, "--wait", code=0)  # nobody is asked again


def test_who_has_to_agree_can_see_to_what(tmp_path: Path) -> None:
    """T2, E6: the files are named, and can be read; one that was changed since is not passed off as the step's."""
    task = waiting(tmp_path)
    shown = task("show", task.run, code=0).out
    assert "it reads requirements.json" in shown
    assert f"rerail artifacts {task.run} requirements.json" in shown
    said = task("artifacts", task.run, "requirements.json", "--json", code=0).json
    assert said == json.loads((task.workspace / "requirements.json").read_text())
    assert "requirements.json" in task("artifacts", task.run, code=0).out
    refused = task("artifacts", task.run, "requirement.json", "--json", code=2).json["error"]
    assert "requirements.json" in refused["hint"]
    (task.workspace / "requirements.json").write_text("{}")
    refused = task("artifacts", task.run, "requirements.json", "--json", code=2).json["error"]
    assert refused["code"] == "FILE_DAMAGED"


def test_confirm_refused(tmp_path: Path) -> None:
    """T2: a no fails the step, and what it would have led to does not happen."""
    task = waiting(tmp_path)
    task("confirm", task.run, "--refuse", "--wait", code=1)
    assert task.calls() == {"extract": 1}
    assert task("show", task.run, "--json").json["failed_stage"] == "retrieving"


def test_confirm_with_an_edited_file(tmp_path: Path) -> None:
    """T2: what a person changes is checked, takes the file's place, and is what the next stage reads."""
    task = waiting(tmp_path)
    old = (task.workspace / "requirements.json").read_bytes()
    edited = task.folder / "requirements.json"
    edited.write_text('{"objective": "less"}')
    refused = task("confirm", task.run, "--edit", "requirements.json", "--json", code=2).json["error"]
    assert refused["code"] == "FILE_DAMAGED"
    assert "topics" in refused["message"]
    assert (task.workspace / "requirements.json").read_bytes() == old
    (task.folder / "other.json").write_text("{}")
    refused = task("confirm", task.run, "--edit", "other.json", "--json", code=2).json["error"]
    assert refused["code"] == "FILE_UNKNOWN"
    task("confirm", task.run, "--edit", "nowhere.json", code=2)

    edited.write_text('{"objective": "less", "topics": ["press"], "budget": 5}')
    task("confirm", task.run, "--edit", "requirements.json", "--wait", code=0)
    plan = json.loads((task.workspace / "plan.json").read_text())
    assert [section["topic"] for section in plan["sections"]] == ["press"]
    assert task.calls()["extract"] == 1  # it is not made again because it was changed
    assert old in task.contents()


def test_an_edit_that_a_retry_would_undo_is_named(tmp_path: Path) -> None:
    """T3, T4, R7: before anything runs, and when it runs; where the file is kept, nothing is said, and nothing lost."""
    task = waiting(tmp_path)
    mine = '{"objective": "less", "topics": ["press"], "budget": 5}'
    (task.folder / "requirements.json").write_text(mine)
    task("confirm", task.run, "--edit", "requirements.json", "--wait", code=0)
    later = task("retry", task.run, "--force", "--stage", "generating", "--dry-run", "--json", code=0).json
    assert later["edited"] == []
    again = ("retry", task.run, "--force", "--stage", "extracting")
    assert task(*again, "--dry-run", "--json", code=0).json["edited"] == ["requirements.json"]
    assert "Edited by hand" in task(*again, "--dry-run", code=0).out
    told = task(*again, "--wait", code=3)
    task("confirm", task.run, "--wait", code=0)
    assert "Edited by hand" in told.err and "requirements.json" in told.err
    assert mine.encode() in task.contents()
    assert task(*again, "--dry-run", "--json", code=0).json["edited"] == []  # it is the step's own once more


# -- From every state (T5) ----------------------------------------------------------------------------------------


def test_completed_needs_force(failed: Failed) -> None:
    """T5: a completed task is retried with --force only, from its last stage, and that is no counted retry."""
    task = failed("")
    assert task("retry", task.run, "--json", code=2).json["error"]["code"] == "RUN_COMPLETED"
    task("retry", task.run, "--force", "--wait", code=0)
    assert task.calls()["generate"] == 2
    assert task.calls()["retrieve"] == 1
    assert task("show", task.run, "--json").json["retries"] == 0
    assert len(task.runs()) == 3  # run again, so what follows it is started anew (T6)


def test_cancelled_resumes_and_counts_from_nothing(tmp_path: Path) -> None:
    """T5: a cancelled task goes on where it was, with its count at 0."""
    task = waiting(tmp_path)
    task("cancel", task.run, code=0)
    assert task.task_json()["status"] == "cancelled"
    task("retry", task.run, "--wait", code=3)
    task("confirm", task.run, "--wait", code=0)
    assert task.calls()["extract"] == 1
    assert task("show", task.run, "--json").json["retries"] == 0


def test_a_follow_ups_failure_is_its_own(failed: Failed) -> None:
    """T6: the parent stays completed; the follow-up's retries count apart and need no --force."""
    task = failed("evaluating")
    assert task("show", task.run, "--json").json["status"] == "completed"
    snapshot = task.task_json()
    assert (snapshot["status"], snapshot["feedback_status"]) == ("completed", "failed")
    assert snapshot["feedback_error"].startswith("503")
    assert snapshot["error"] is None
    task("retry", task.run, "--wait", fail="reflecting", code=1)
    assert task.task_json()["feedback_retry_count"] == 1
    task("retry", task.run, "--wait", code=0)
    assert task.task_json()["retry_count"] == 0
    assert task.calls() == {"extract": 1, "retrieve": 1, "generate": 1, "evaluate": 2, "reflect": 2, "curate": 1}


def test_retry_history(failed: Failed) -> None:
    """T9: every accepted retry is on record: when, what, from where, why, and the count."""
    task = failed("generating")
    task("retry", task.run, "--wait", fail="generating", code=1)
    [entry] = task.task_json()["retry_history"]
    assert time.time() - entry.pop("time") < 120
    assert entry == {
        "operation": "retry", "strategy": "partial", "previous_status": "failed", "stage": "generating",
        "error": "503 Service Unavailable: try again later", "count": 1,
    }  # fmt: skip


# -- The report, to the letter ------------------------------------------------------------------------------------

REPORT = """\
🔄 准备重试任务 {run}
  ✅ 任务状态: FAILED
  ✅ 失败阶段: evaluating
  ✅ 重试次数: 1/3
  ✅ 错误可重试

📋 重试策略: 部分重试
  - 保留文件: plan.json, generation_result.json
  - 从评估阶段重新开始

🚀 正在启动重试进程...
  进程ID: {pid}

💡 查看实时日志: /logs {run} --tail 50
"""


def test_report(failed: Failed) -> None:
    """T8, T12: the report of a retry under zh, character by character; the worker it names does the work."""
    task = failed("evaluating")
    told = task("retry", task.run, "--lang", "zh", code=0).out
    pid = told.partition("进程ID: ")[2].split()[0]
    assert told == REPORT.format(run=task.run, pid=pid)
    assert pid.isdecimal()
    assert int(pid) != os.getpid()
    assert task.settled() == "completed"
    assert task.task_json()["feedback_status"] == "completed"
    log = (task.workspace / "worker.log").read_text()
    assert pid in log
    shown = task("logs", task.run, "--tail", "50").out  # as the report says
    assert "evaluate_plan" in shown


def test_report_in_english(failed: Failed) -> None:
    """T12: the same in English, with a command that can be typed."""
    task = failed("generating")
    told = task("retry", task.run, "--lang", "en", code=0).out
    assert told.startswith(f"🔄 Retrying run {task.run}\n  ✅ status: FAILED\n  ✅ failed stage: generating\n")
    assert f"rerail logs {task.run} --tail 50" in told
    assert task.settled() == "completed"
