"""What people read about stores that are servers (SPEC I5, I6, E4)."""

from __future__ import annotations

STORES: dict[str, dict[str, str]] = {
    "refuse.store.pg_closed": {
        "en": "the store {where} is closed",
        "zh": "存储 {where} 已关闭",
    },
    "refuse.store.pg_unreachable": {
        "en": "Postgres at {where} is out of reach ({error}). Is the server running, and is the address right?",
        "zh": "无法访问位于 {where} 的 Postgres（{error}）。服务器在运行吗？地址正确吗？",
    },
    "refuse.store.pg_overloaded": {
        "en": "Postgres at {where} cannot take this now ({error})",
        "zh": "位于 {where} 的 Postgres 现在无法处理（{error}）",
    },
    "refuse.store.pg_too_large": {
        "en": "the content {digest} of {size} MB is too large for Postgres at {where}, which holds {most} MB in one piece. Write such outputs to files.",
        "zh": "内容 {digest} 有 {size} MB，对位于 {where} 的 Postgres 来说过大（单项最多 {most} MB）。请把这样的输出写入文件。",
    },
    "refuse.store.pg_disk_full": {
        "en": "the disk of Postgres at {where} is full ({error}). Free some space there; nothing written before is lost.",
        "zh": "位于 {where} 的 Postgres 的磁盘已满（{error}）。请在那里腾出空间；之前写入的内容没有丢失。",
    },
    "refuse.store.pg_login": {
        "en": "Postgres at {where} does not let us in ({error}). Check user and password in the address, or in ~/.pgpass.",
        "zh": "位于 {where} 的 Postgres 拒绝登录（{error}）。请检查地址或 ~/.pgpass 中的用户名和密码。",
    },
    "refuse.store.pg_no_database": {
        "en": "there is no such database at {where} ({error}). Make it: createdb NAME",
        "zh": "{where} 没有这个数据库（{error}）。请先创建：createdb NAME",
    },
    "refuse.store.pg_forbidden": {
        "en": "the user of {where} may not do this ({error}). Let an owner of the database open the store once, and grant the use of schema rerail.",
        "zh": "{where} 的用户没有权限（{error}）。请由数据库所有者先打开一次存储，并授予 schema rerail 的使用权限。",
    },
    "refuse.store.pg_read_only": {
        "en": "Postgres at {where} only lets us read ({error}). Is it a standby?",
        "zh": "位于 {where} 的 Postgres 只允许读取（{error}）。它是备用服务器吗？",
    },
    "refuse.store.pg_refused": {
        "en": "Postgres at {where} refused: {error}",
        "zh": "位于 {where} 的 Postgres 拒绝了请求：{error}",
    },
    "refuse.store.redis_closed": {
        "en": "the store {where} is closed",
        "zh": "存储 {where} 已关闭",
    },
    "refuse.store.redis_unreachable": {
        "en": "Redis at {where} is out of reach ({error}). Is the server running, and is the address right?",
        "zh": "无法访问位于 {where} 的 Redis（{error}）。服务器在运行吗？地址正确吗？",
    },
    "refuse.store.redis_busy": {
        "en": "Redis at {where} cannot take this now ({error})",
        "zh": "位于 {where} 的 Redis 现在无法处理（{error}）",
    },
    "refuse.store.redis_full": {
        "en": "the memory of Redis at {where} is used up ({error}). Raise maxmemory or remove other data; nothing written before is lost.",
        "zh": "位于 {where} 的 Redis 内存已用尽（{error}）。请提高 maxmemory 或删除其他数据；之前写入的内容没有丢失。",
    },
    "refuse.store.redis_login": {
        "en": "Redis at {where} does not let us in ({error}). Check user and password in the address.",
        "zh": "位于 {where} 的 Redis 拒绝登录（{error}）。请检查地址中的用户名和密码。",
    },
    "refuse.store.redis_cluster": {
        "en": "{where} is a Redis cluster; a history and its lists must be on one server. Use a single server, with replicas if you like.",
        "zh": "{where} 是 Redis 集群；历史和列表必须在同一台服务器上。请使用单台服务器（可以带副本）。",
    },
    "refuse.store.redis_refused": {
        "en": "Redis at {where} refused: {error}",
        "zh": "位于 {where} 的 Redis 拒绝了请求：{error}",
    },
    "warn.store.redis_volatile": {
        "en": "Redis at {where} keeps nothing on disk: when it stops, every run is gone. Set appendonly yes in its configuration.",
        "zh": "位于 {where} 的 Redis 不写入磁盘：它停止后所有任务都会丢失。请在其配置中设置 appendonly yes。",
    },
    "warn.store.redis_snapshots": {
        "en": "Redis at {where} writes to disk only now and then: when it stops hard, minutes of history are lost. Set appendonly yes in its configuration.",
        "zh": "位于 {where} 的 Redis 只是偶尔写入磁盘：异常停止时会丢失几分钟的历史。请在其配置中设置 appendonly yes。",
    },
    "warn.store.redis_everysec": {
        "en": "Redis at {where} writes to disk once a second: when its machine stops hard, the last second of history is lost. Set appendfsync always.",
        "zh": "位于 {where} 的 Redis 每秒写入一次磁盘：所在机器异常停止时会丢失最后一秒的历史。请设置 appendfsync always。",
    },
    "warn.store.redis_unsynced": {
        "en": "Redis at {where} leaves it to its system when it writes to disk: when its machine stops hard, half a minute of history and more is lost. Set appendfsync always.",
        "zh": "位于 {where} 的 Redis 由操作系统决定何时写入磁盘：所在机器异常停止时会丢失半分钟或更多的历史。请设置 appendfsync always。",
    },
    "warn.store.pg_unsafe": {
        "en": "Postgres at {where} runs with {name} = off: when its machine stops hard, histories may be lost or damaged. Set {name} = on.",
        "zh": "位于 {where} 的 Postgres 设置了 {name} = off：所在机器异常停止时，历史可能丢失或损坏。请设置 {name} = on。",
    },
    "reason.store.silent": {
        "en": "the server has said nothing for {seconds} s",
        "zh": "服务器已有 {seconds} 秒没有任何回应",
    },
    "warn.store.redis_evicts": {
        "en": "Redis at {where} removes keys when its memory is full (maxmemory-policy {policy}): histories may lose parts. Set maxmemory-policy noeviction.",
        "zh": "位于 {where} 的 Redis 在内存不足时会删除键（maxmemory-policy {policy}）：历史可能不完整。请设置 maxmemory-policy noeviction。",
    },
    "refuse.settings.store_extra": {
        "en": "the store {url} needs another package. Install it: pip install 'rerail[{extra}]'",
        "zh": "存储 {url} 需要另一个软件包。请安装：pip install 'rerail[{extra}]'",
    },
    "reason.copy.driven": {
        "en": "{owner} is driving it; wait until it is at rest, or pause it",
        "zh": "{owner} 正在运行它；请等它停下来，或先暂停",
    },
    "reason.copy.open": {
        "en": "it is {status}, and would go on in both stores; --move takes it along and ends it here",
        "zh": "它的状态是 {status}，复制后会在两个存储中继续；--move 会把它移过去，并在原处结束",
    },
    "reason.copy.moved": {
        "en": "it was moved to {to}, and goes on there",
        "zh": "它已移到 {to}，在那里继续",
    },
    "reason.copy.unreadable": {
        "en": "its history cannot be read: {error}",
        "zh": "无法读取它的历史：{error}",
    },
    "reason.copy.differs": {
        "en": "the target has another history under this id, from event {seq} on",
        "zh": "目标中同名任务的历史从事件 {seq} 起不同",
    },
    "reason.copy.damaged": {
        "en": "the content {digest} is not what its name says",
        "zh": "内容 {digest} 与其摘要不符",
    },
    "reason.copy.gap": {
        "en": "events {first} to {last} are missing",
        "zh": "缺少事件 {first} 至 {last}",
    },
    "reason.copy.no_event": {
        "en": "event {seq} is not one",
        "zh": "事件 {seq} 不是有效的事件",
    },
    "reason.copy.lost": {
        "en": "{n:content|contents} cannot be read or changed ({digests}); `rerail retry RUN --step STEP --force` makes such outputs again",
        "zh": "{n} 项内容无法读取或已改变（{digests}）；`rerail retry RUN --step STEP --force` 可重新生成这样的输出",
    },
    "reason.copy.wishes": {
        "en": "what people asked of it cannot be read; all else was copied",
        "zh": "无法读取人们对它提出的请求；其余已复制",
    },
    "reason.copy.failed": {
        "en": "it was not copied: {error} What arrived of it is nobody's; once that is mended, type the command again",
        "zh": "未能复制：{error} 已到达的部分不属于任何人；排除问题后请再次执行该命令",
    },
    "cli.command.store": {
        "en": "Copy runs from one store to another.",
        "zh": "把任务从一个存储复制到另一个。",
    },
    "cli.about.store": {
        "en": "Copy runs from one store to another: histories and contents, compared on arrival. Files of runs stay where they are.",
        "zh": "把任务从一个存储复制到另一个：历史和内容，到达后逐一核对。任务的文件留在原处。",
    },
    "cli.arg.store.action": {"en": "copy.", "zh": "copy。"},
    "cli.arg.store.source": {"en": "The store to read from: a file or an address.", "zh": "要读取的存储：文件或地址。"},
    "cli.arg.store.target": {"en": "The store to write to: a file or an address.", "zh": "要写入的存储：文件或地址。"},
    "cli.arg.store.move": {
        "en": "Take runs along that are not at rest: they go on in the target, and end as cancelled here.",
        "zh": "连同尚未结束的任务一起移动：它们在目标中继续，在原处则以 cancelled 结束。",
    },
    "cli.arg.store.run": {"en": "Only this run; may be given several times.", "zh": "只复制这个任务；可以给出多次。"},
    "cli.store.action": {
        "en": "store has one action, copy, and no {action!r}: rerail store copy FROM TO",
        "zh": "store 只有 copy 一个动作，没有 {action!r}：rerail store copy FROM TO",
    },
    "cli.store.same": {"en": "{url} cannot be copied onto itself", "zh": "{url} 不能复制到自身"},
    "cli.store.unknown": {"en": "{url} has no run {runs}", "zh": "{url} 中没有任务 {runs}"},
    "cli.store.progress": {"en": "{n} runs …", "zh": "{n} 个任务……"},
    "cli.store.copied": {"en": "copied", "zh": "已复制"},
    "cli.store.same_there": {"en": "there already", "zh": "此前已在"},
    "cli.store.moved": {"en": "moved", "zh": "已移动"},
    "cli.store.driven": {"en": "left out", "zh": "已略过"},
    "cli.store.open": {"en": "left out", "zh": "已略过"},
    "cli.store.differs": {"en": "differs", "zh": "不一致"},
    "cli.store.damaged": {"en": "damaged", "zh": "已损坏"},
    "cli.store.partial": {"en": "in part", "zh": "不完整"},
    "cli.store.failed": {"en": "failed", "zh": "失败"},
    "cli.store.expired": {
        "en": "{n:content|contents} had expired before",
        "zh": "{n} 项内容此前已过期",
    },
    "cli.store.done": {
        "en": "{copied:run|runs} copied and compared, {moved} moved, {same} there already, {others} to look at",
        "zh": "已复制并核对 {copied} 个任务，移动 {moved} 个，{same} 个此前已在，{others} 个需要查看",
    },
    "cli.head.outcome": {"en": "outcome", "zh": "结果"},
    "cli.head.reason": {"en": "reason", "zh": "原因"},
}
