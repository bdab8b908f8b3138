"""What is said about worker processes, their logs, and runs that change hands (SPEC T7, T8, T9)."""

from __future__ import annotations

WORKERS: dict[str, dict[str, str]] = {
    # Who has a run, and who takes it.
    "notice.worker.dead": {
        "en": "process {owner}, which drove run {run}, is gone; its lease was taken over",
        "zh": "执行任务 {run} 的进程 {owner} 已不存在；已接管其租约",
    },
    "notice.worker.residual": {
        "en": "a worker of run {run} is still there ({owner}); ending it",
        "zh": "任务 {run} 的工作进程 {owner} 仍然存在；正在结束它",
    },
    "notice.worker.taken_away": {
        "en": "run {run} was taken from process {owner}, which was silent; it can write nothing more",
        "zh": "已从没有响应的进程 {owner} 手中接管任务 {run}；该进程无法再写入任何内容",
    },
    "hint.worker.silent": {
        "en": "process {owner} is stopped or silent; wake it, or take the run away: rerail resume {run} --take-over",
        "zh": "进程 {owner} 已暂停或没有响应；请唤醒它，或接管任务：rerail resume {run} --take-over",
    },
}
