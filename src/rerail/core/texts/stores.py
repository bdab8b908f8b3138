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
    "reason.export.open": {
        "en": "it is {status}; only runs at rest are exported. Finish it or cancel it first",
        "zh": "它的状态是 {status}；只导出已结束的任务。请先让它完成或取消它",
    },
    "reason.export.unreadable": {"en": "its history cannot be read: {error}", "zh": "无法读取它的历史：{error}"},
    "reason.export.no_event": {
        "en": "event {seq} is missing or not an event",
        "zh": "事件 {seq} 缺失，或不是有效的事件",
    },
    "reason.export.lost": {
        "en": "{n:content|contents} cannot be read or changed ({digests}); `rerail retry RUN --step STEP --force` makes such outputs again",
        "zh": "{n} 项内容无法读取或已改变（{digests}）；`rerail retry RUN --step STEP --force` 可重新生成这样的输出",
    },
    "reason.import.differs": {
        "en": "the store has another history under this id",
        "zh": "存储中同名任务的历史不同",
    },
    "reason.import.content": {"en": "content {digest} does not match its digest", "zh": "内容 {digest} 与其摘要不符"},
    "reason.import.order": {"en": "a line is missing, or not in its place", "zh": "缺少某一行，或某一行的位置不对"},
    "reason.import.cut": {"en": "the file ends too early", "zh": "文件过早结束"},
    "refuse.import.file": {
        "en": "nothing was imported: the file is not a whole export (run {run}): {reason}",
        "zh": "未导入任何内容：文件不是完整的导出（任务 {run}）：{reason}",
    },
    "hint.import.file": {
        "en": "export the runs again, where they are",
        "zh": "请在任务所在之处重新导出",
    },
    "refuse.import.empty": {"en": "the file is empty", "zh": "文件是空的"},
    "refuse.import.held": {
        "en": "the copies of {runs} cannot be replaced: another run follows one of them, or a process holds it",
        "zh": "无法替换 {runs} 的副本：有其他任务接续其中之一，或有进程正持有它",
    },
    "cli.command.export": {"en": "Write runs at rest into a file.", "zh": "把已结束的任务写入文件。"},
    "cli.about.export": {
        "en": "Write runs at rest as JSON lines, with their contents; rerail import reads them into any store. A run that is not at rest, or cannot be read, is named and left out.\n\nFiles in workspaces stay where they are. Exit code 1 if a run was left out, or lacks a content.",
        "zh": "把已结束的任务连同内容写成 JSON 行；rerail import 可把它们读入任何存储。未结束或无法读取的任务会被列出并略过。\n\n工作区中的文件留在原处。有任务被略过或缺少内容时退出码为 1。",
    },
    "cli.arg.export.runs": {"en": "The runs' ids, or the beginnings of them.", "zh": "任务编号或其开头。"},
    "cli.arg.export.every": {"en": "All runs of the store.", "zh": "存储中的所有任务。"},
    "cli.arg.export.output": {
        "en": "The file to write; stdout without it.",
        "zh": "要写入的文件；不给出则写到标准输出。",
    },
    "cli.command.import": {"en": "Read exported runs into the store.", "zh": "把导出的任务读入存储。"},
    "cli.about.import": {
        "en": "Read the runs of an export into the store, as copies: they are shown and replayed, and what would go on with them is refused. The whole file is checked first. A run that is there already is left alone.\n\nExit code 1 if a run is not there, whole, afterwards.",
        "zh": "把导出文件中的任务作为副本读入存储：可以查看和重放，但不能继续执行。写入之前会检查整个文件。已存在的任务保持不变。\n\n若之后有任务不在存储中或不完整，退出码为 1。",
    },
    "cli.arg.import.file": {"en": "A file that rerail export wrote.", "zh": "rerail export 写出的文件。"},
    "cli.arg.import.own": {
        "en": "The originals are given up: the runs can go on here.",
        "zh": "原任务已放弃：这些任务可以在这里继续。",
    },
    "cli.export.what": {"en": "name runs to export, or --all", "zh": "请给出要导出的任务，或用 --all"},
    "cli.export.json": {
        "en": "--json needs --output FILE: stdout has the report",
        "zh": "--json 需要 --output FILE：标准输出用于报告",
    },
    "cli.export.unwritable": {"en": "cannot write {file}: {reason}", "zh": "无法写入 {file}：{reason}"},
    "cli.import.unreadable": {"en": "cannot read {file}: {reason}", "zh": "无法读取 {file}：{reason}"},
    "reason.import.failed": {
        "en": "the store does not take it: {error} Nothing goes on with what arrived; once that is mended, import the file again",
        "zh": "存储未能接收：{error} 已到达的部分不会继续执行；排除问题后请再次导入该文件",
    },
    "cli.carried.failed": {"en": "failed", "zh": "失败"},
    "cli.carried.partial": {"en": "in part", "zh": "不完整"},
    "cli.carried.open": {"en": "left out", "zh": "已略过"},
    "cli.carried.damaged": {"en": "damaged", "zh": "已损坏"},
    "cli.carried.differs": {"en": "differs", "zh": "不一致"},
    "cli.carried.arriving": {"en": "left out", "zh": "已略过"},
    "cli.carried.exported": {
        "en": "{done:run|runs} exported, {n} to look at",
        "zh": "已导出 {done} 个任务，{n} 个需要查看",
    },
    "cli.carried.imported": {
        "en": "{done:run|runs} imported, {same} there already, {n} to look at",
        "zh": "已导入 {done} 个任务，{same} 个此前已在，{n} 个需要查看",
    },
    "cli.store.gone": {"en": "this version has no command store", "zh": "此版本没有 store 命令"},
    "cli.store.instead": {
        "en": "runs at rest: rerail export --all --store FROM --output FILE, then rerail import FILE --own --store TO; open runs finish where they are",
        "zh": "已结束的任务：先 rerail export --all --store FROM --output FILE，再 rerail import FILE --own --store TO；未结束的任务在原处完成",
    },
    "cli.head.outcome": {"en": "outcome", "zh": "结果"},
    "cli.head.reason": {"en": "reason", "zh": "原因"},
}
