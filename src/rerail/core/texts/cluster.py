"""What is said about Ray clusters, and runs that are left to workers (SPEC I6)."""

from __future__ import annotations

CLUSTER: dict[str, dict[str, str]] = {
    # Why a call in a cluster failed.
    "error.ray.lost": {
        "en": "the cluster lost the call ({kind}: {error}); its answer is lost",
        "zh": "集群丢失了这次调用（{kind}：{error}），结果丢失",
    },
    "error.ray.gone": {
        "en": "the cluster has been gone for {seconds:g} s; the call's answer is lost",
        "zh": "集群已失联 {seconds:g} 秒，此调用的结果丢失",
    },
    "error.ray.no_room": {
        "en": "the cluster had no room for the call within {seconds:g} s (it asks for: {wanted})",
        "zh": "集群在 {seconds:g} 秒内没有空余资源执行此调用（所需资源：{wanted}）",
    },
    "error.ray.refuses": {
        "en": "the cluster does not take the call: {error}",
        "zh": "集群不接受此调用：{error}",
    },
    "error.ray.unreachable": {
        "en": "the cluster is out of reach, and nothing was called: {error}",
        "zh": "无法连接集群，没有调用任何工具：{error}",
    },
    "error.ray.not_carried": {
        "en": "the tool {tool!r} cannot be sent to the cluster ({error}); define it at the top of a module or a file",
        "zh": "无法把工具 {tool!r} 发送到集群（{error}）；请把它定义在模块或文件的顶层",
    },
    "error.ray.not_there": {
        "en": "the tool {tool} cannot be loaded on node {node} ({error}); install it there, or send its folder along:"
        " ray.env = {{working_dir = …}}",
        "zh": "节点 {node} 上无法加载工具 {tool}（{error}）；请在该节点安装它，或随任务发送其目录：ray.env = {{working_dir = …}}",
    },
    # Who drives a run: tombstones of `on="ray"`, `--on` and `ray.coordinator`.
    "refuse.ray.coordinator": {
        "en": "{what} is gone: runs are no longer driven by actors of a Ray cluster",
        "zh": "{what} 已取消：任务不再由 Ray 集群中的 actor 执行",
    },
    "hint.ray.coordinator": {
        "en": "leave the run to a worker of the store: rerail start PLAN --queue (engine.submit), and rerail worker on any"
        " machine; ray.steps = true still makes its steps Ray tasks",
        "zh": "请把任务交给存储的工作进程：rerail start PLAN --queue（engine.submit），并在任意机器上运行 rerail worker；"
        "ray.steps = true 仍会把步骤作为 Ray 任务执行",
    },
    # Workers.
    "cli.work.begun": {
        "en": "worker {pid} takes up to {jobs:run|runs} at once, with {count:tool|tools}; Ctrl-C hands them over",
        "zh": "工作进程 {pid} 最多同时执行 {jobs} 个任务，有 {count} 个工具；按 Ctrl-C 移交任务",
    },
    "cli.work.took": {"en": "run {run}: taken up", "zh": "任务 {run}：已接手"},
    "cli.work.rest": {"en": "run {run}: {status}", "zh": "任务 {run}：{status}"},
    "reason.work.left": {
        "en": "run {run} is left to others: {why}",
        "zh": "任务 {run} 留给其他工作进程：{why}",
    },
    "reason.work.no_store": {
        "en": "the store is out of reach for now: {error}",
        "zh": "暂时无法访问存储：{error}",
    },
    "cli.work.leaving": {
        "en": "handing over {count:run|runs}; calls under way get {seconds:g} s to end",
        "zh": "正在移交 {count} 个任务；进行中的调用有 {seconds:g} 秒时间结束",
    },
    "cli.work.ended": {
        "en": "{taken:run|runs} taken up, {ended} came to rest; {others} left to others",
        "zh": "接手了 {taken} 个任务，{ended} 个已结束；{others} 个留给其他工作进程",
    },
    "cli.work.queued": {
        "en": "run {run} waits for a worker: rerail worker",
        "zh": "任务 {run} 正在等待工作进程：rerail worker",
    },
    "cli.work.no_jobs": {
        "en": "--jobs {jobs}: at least one run at a time",
        "zh": "--jobs {jobs}：至少同时执行一个任务",
    },
    "cli.work.memory_hint": {
        "en": "name one that workers share: --store postgresql://HOST/DATABASE, or a file",
        "zh": "请指定工作进程共享的存储：--store postgresql://HOST/DATABASE，或一个文件",
    },
    # Why there is no cluster.
    "refuse.ray.no_cluster": {
        "en": "no Ray cluster at {address}: {error}",
        "zh": "在 {address} 找不到 Ray 集群：{error}",
    },
    "hint.ray.no_cluster": {
        "en": "start one (ray start --head), or name another: --set ray.address=HOST:PORT; local starts one for this"
        " process alone",
        "zh": "请启动一个集群（ray start --head），或指定另一个：--set ray.address=HOST:PORT；local 表示仅为本进程启动一个",
    },
    "refuse.settings.ray_extra": {
        "en": "Ray is not installed; it comes with an extra: pip install 'rerail[ray]'",
        "zh": "未安装 Ray；它属于附加组件：pip install 'rerail[ray]'",
    },
}
