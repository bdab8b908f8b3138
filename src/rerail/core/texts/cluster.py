"""What is said about Ray clusters, and runs that are left to workers (SPEC I6)."""

from __future__ import annotations

CLUSTER: dict[str, dict[str, str]] = {
    # Why a call in a cluster failed.
    "error.ray.lost": {
        "en": "the cluster lost the call ({kind}: {error}); its answer is lost",
        "zh": "集群丢失了这次调用（{kind}：{error}），结果丢失",
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
