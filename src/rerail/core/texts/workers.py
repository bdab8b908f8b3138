"""What is said about worker processes, their logs, and runs that change hands (SPEC T7, T8, T9)."""

from __future__ import annotations

WORKERS: dict[str, dict[str, str]] = {
    # Who has a run, and who takes it.
    "notice.worker.dead": {
        "en": "process {owner}, which drove run {run}, is gone; its lease was taken over",
        "zh": "执行任务 {run} 的进程 {owner} 已不存在；已接管其租约",
    },
    "notice.worker.watched": {
        "en": "process {owner}, which drives run {run}, seems to be gone; its lease is watched for {seconds} s before it is "
        "taken over",
        "zh": "执行任务 {run} 的进程 {owner} 似乎已不存在；接管之前先观察其租约 {seconds} 秒",
    },
    "notice.worker.residual": {
        "en": "a worker of run {run} is still there ({owner}); ending it",
        "zh": "⚠️  检测到残留子进程，正在终止...",
    },
    "notice.worker.taken_away": {
        "en": "run {run} was taken from process {owner}, which was silent; it can write nothing more",
        "zh": "已从没有响应的进程 {owner} 手中接管任务 {run}；该进程无法再写入任何内容",
    },
    "hint.worker.silent": {
        "en": "process {owner} is stopped or silent; wake it, or take the run away: rerail resume {run} --take-over",
        "zh": "进程 {owner} 已暂停或没有响应；请唤醒它，或接管任务：rerail resume {run} --take-over",
    },
    # Workers and those who start them.
    "cli.worker.detached": {
        "en": "run {run} goes on in worker process {pid}",
        "zh": "任务 {run} 由工作进程 {pid} 在后台执行",
    },
    "cli.worker.recorded": {
        "en": "done: it was written down for run {run}, which no worker drives from here",
        "zh": "已完成：已写入任务 {run} 的历史，但未由工作进程继续执行",
    },
    "cli.worker.died": {
        "en": "worker process {pid} ended (status {status}) before it had taken the run up",
        "zh": "工作进程 {pid} 在接手任务之前结束（状态 {status}）",
    },
    "cli.worker.died_on": {
        "en": "its worker process {pid} died (status {status}); it can be resumed",
        "zh": "其工作进程 {pid} 中途死亡（状态 {status}）；可以恢复",
    },
    "cli.worker.wait_or_detach": {
        "en": "say --wait or --detach, not both",
        "zh": "--wait 与 --detach 只能选一个",
    },
    "cli.worker.memory": {
        "en": "a store in memory ends with its process, so no worker can use it",
        "zh": "内存存储随进程消失，工作进程无法使用",
    },
    "cli.worker.memory_hint": {
        "en": "name a file with --store, or stay with the run: --wait",
        "zh": "用 --store 指定文件，或保持连接：--wait",
    },
    "cli.worker.so_far": {"en": "{done} of {total:run|runs} done", "zh": "已完成 {done}/{total} 个任务"},
    "cli.retry.all_or_one": {
        "en": "--all-failed goes with neither --step, --stage, --wait, --detach nor --take-over",
        "zh": "--all-failed 不能与 --step、--stage、--wait、--detach 或 --take-over 一起使用",
    },
    "cli.retry.jobs_for_all": {"en": "--jobs goes with --all-failed", "zh": "--jobs 只能与 --all-failed 一起使用"},
    "cli.retry.no_jobs": {
        "en": "--jobs {jobs}: at least one process is needed",
        "zh": "--jobs {jobs}：至少需要一个进程",
    },
    # What a worker writes into the log of its run.
    "cli.worker.began": {
        "en": "worker process {pid} took run {run} up",
        "zh": "工作进程 {pid} 接手任务 {run}",
    },
    "cli.worker.ended": {
        "en": "worker process {pid} is done with run {run}: {status}",
        "zh": "工作进程 {pid} 已处理完任务 {run}：{status}",
    },
    "cli.worker.terminated": {
        "en": "the worker was told to end; the run can be resumed: rerail resume {run}{where}",
        "zh": "工作进程被要求结束；任务可以恢复：rerail resume {run}{where}",
    },
    "cli.worker.broke": {"en": "the worker stopped: {message}", "zh": "工作进程停止：{message}"},
    "cli.worker.no_log": {
        "en": "the log {file} cannot be written: {reason}",
        "zh": "无法写入日志 {file}：{reason}",
    },
    "cli.logs.tail": {"en": "--tail takes a number of lines, 0 or more", "zh": "--tail 需要行数，0 或更大"},
    "cli.logs.interrupted": {
        "en": "nobody drives the run any more; go on with: rerail resume {run}",
        "zh": "任务已无人执行；继续：rerail resume {run}",
    },
}
