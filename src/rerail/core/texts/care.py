"""What people read when they look after a store: prune, backup, doctor."""

from __future__ import annotations

CARE: dict[str, dict[str, str]] = {
    "cli.command.prune": {"en": "Remove runs that ended long ago.", "zh": "删除很久以前结束的任务。"},
    "cli.command.backup": {
        "en": "Copy the store to a file, while runs go on.",
        "zh": "在任务运行的同时把存储备份到文件。",
    },
    "cli.about.prune": {
        "en": "Remove runs that ended long ago: history, actions and contents that no other run needs. A run that others follow goes with them or not at all; one that is unfinished, waiting or driven stays. Asks first, unless --yes.",
        "zh": "删除很久以前结束的任务：历史、操作，以及没有其他任务需要的内容。有后续任务的任务要么一起删除，要么都保留；未完成、等待中或正在运行的任务会保留。除非给出 --yes，否则先询问。",
    },
    "cli.arg.prune.older_than": {
        "en": "How long ago a run must have ended: 30d, 12h, 90m, 2w.",
        "zh": "任务必须在多久以前结束：30d、12h、90m、2w。",
    },
    "cli.arg.prune.status": {
        "en": "Only runs that ended so; may be given several times.",
        "zh": "只删除以此状态结束的任务；可多次给出。",
    },
    "cli.arg.prune.keep": {
        "en": "Keep so many of the newest runs, however old they are; those that follow a run count with it.",
        "zh": "无论多旧，都保留最新的这么多个任务；后续任务与其所接续的任务一起计算。",
    },
    "cli.arg.prune.files": {
        "en": "Remove the folders with the runs' files, too.",
        "zh": "同时删除任务文件所在的文件夹。",
    },
    "cli.arg.prune.yes": {"en": "Do not ask.", "zh": "不询问。"},
    "cli.prune.damaged": {
        "en": "the store is damaged ({error}), and nothing is removed from it; rerail doctor says more",
        "zh": "存储已损坏（{error}），不会从中删除任何内容；rerail doctor 会说明详情",
    },
    "cli.prune.negative": {
        "en": "--keep takes a count of runs, 0 or more: {n} is none",
        "zh": "--keep 需要任务个数，0 或更大：{n} 不是",
    },
    "cli.prune.how_old": {
        "en": "{text!r} is no time span: 30d, 12h, 90m, 2w",
        "zh": "{text!r} 不是时间长度：30d、12h、90m、2w",
    },
    "cli.prune.which": {
        "en": "say which runs may go: --older-than 30d, or --keep 100",
        "zh": "请说明可以删除哪些任务：--older-than 30d 或 --keep 100",
    },
    "cli.prune.no_terminal": {
        "en": "{n:run|runs} would go for good, and there is no terminal to ask on",
        "zh": "{n} 个任务将被永久删除，但没有可用于询问的终端",
    },
    "cli.prune.about": {"en": "{n:run|runs} will be removed, for good.", "zh": "{n} 个任务将被永久删除。"},
    "cli.prune.about_files": {
        "en": "{n:run|runs} will be removed, for good, and the folders with their files.",
        "zh": "{n} 个任务及其文件夹将被永久删除。",
    },
    "cli.prune.ask": {"en": "Go on? [y/N]", "zh": "继续吗？[y/N]"},
    "cli.prune.declined": {"en": "nothing was removed", "zh": "没有删除任何内容"},
    "cli.prune.none": {"en": "no run is old enough", "zh": "没有足够旧的任务"},
    "cli.prune.due": {"en": "{n:run|runs} would be removed", "zh": "将删除 {n} 个任务"},
    "cli.prune.removed": {
        "en": "{n:run|runs} and {contents:content|contents} removed",
        "zh": "已删除 {n} 个任务和 {contents} 项内容",
    },
    "cli.prune.freed": {"en": "{size} given back", "zh": "已归还 {size}"},
    "cli.prune.not_freed": {
        "en": "The file keeps its size while runs go on, and new ones use the room; prune again once none does.",
        "zh": "有任务在运行时文件大小不变，新任务会使用腾出的空间；没有任务运行时再次执行 prune 即可。",
    },
    "cli.prune.files_stay": {"en": "{path} could not be removed: {error}", "zh": "无法删除 {path}：{error}"},
    "cli.head.ended": {"en": "ended", "zh": "结束时间"},
    "reason.prune.moved_on": {"en": "it went on while this was being looked at", "zh": "查看期间它又有了进展"},
    "reason.prune.unfinished": {"en": "{run} is {status}", "zh": "{run} 的状态是 {status}"},
    "reason.prune.owned": {"en": "{run} belongs to {owner}", "zh": "{run} 属于 {owner}"},
    "reason.prune.asked": {
        "en": "somebody waits for an answer of {run}; rerail doctor --repair gives one",
        "zh": "有人在等待 {run} 的答复；rerail doctor --repair 会给出答复",
    },
    "reason.prune.unreadable": {
        "en": "the history of {run} cannot be read: {error}",
        "zh": "无法读取 {run} 的历史：{error}",
    },
    "cli.about.backup": {
        "en": "Copy the store to a file, while runs go on: the store as it is at one moment, looked through and opened before the file gets its name. For SQLite; Postgres and Redis have tools of their own.",
        "zh": "在任务运行的同时把存储复制到文件：某一时刻的完整存储，经检查并试着打开后文件才会得名。用于 SQLite；Postgres 和 Redis 有自己的工具。",
    },
    "cli.arg.backup.target": {"en": "The file to write.", "zh": "要写入的文件。"},
    "cli.arg.backup.force": {
        "en": "Put it in the place of a file that is there, and of what lies beside that.",
        "zh": "替换已存在的文件及其旁边的附属文件。",
    },
    "cli.backup.exists": {"en": "{path} is there already", "zh": "{path} 已存在"},
    "cli.backup.itself": {"en": "{path} is the store itself", "zh": "{path} 就是存储本身"},
    "cli.backup.no_folder": {"en": "there is no folder {path}", "zh": "没有文件夹 {path}"},
    "cli.backup.is_folder": {"en": "{path} is a folder; name a file in it", "zh": "{path} 是文件夹；请指定其中的文件"},
    "cli.backup.elsewhere": {
        "en": "only SQLite files are backed up by Rerail; {url} is a server",
        "zh": "Rerail 只备份 SQLite 文件；{url} 是服务器",
    },
    "cli.backup.hint.postgres": {
        "en": "pg_dump --schema=rerail DATABASE > FILE; runs at rest alone: rerail export --all --output FILE",
        "zh": "pg_dump --schema=rerail DATABASE > FILE；只要已结束的任务：rerail export --all --output FILE",
    },
    "cli.backup.hint.redis": {
        "en": "redis-cli --rdb FILE; runs at rest alone: rerail export --all --output FILE",
        "zh": "redis-cli --rdb FILE；只要已结束的任务：rerail export --all --output FILE",
    },
    "cli.backup.memory": {
        "en": "a store in memory is gone with its process, and cannot be copied from here",
        "zh": "内存中的存储随进程消失，无法从这里复制",
    },
    "cli.backup.done": {
        "en": "{path}: {runs:run|runs}, {events:event|events}, {size}; every page looked through (rerail doctor compares the outputs as well)",
        "zh": "{path}：{runs} 个任务，{events} 个事件，{size}；已检查每一页（rerail doctor 还会核对输出）",
    },
    "refuse.store.no_copy": {"en": "{path} cannot be written: {error}", "zh": "无法写入 {path}：{error}"},
    "refuse.store.left_beside": {
        "en": "{path} is there, left of an earlier file: whoever opens {target} would play it over the copy. Move it away, or remove it with --force.",
        "zh": "{path} 是旧文件遗留的：打开 {target} 时它会覆盖副本的内容。请移走它，或用 --force 删除。",
    },
    "refuse.store.other_copy": {
        "en": "{path} does not hold what was copied: something lies beside it, or somebody wrote to it. Make the copy elsewhere.",
        "zh": "{path} 的内容与复制的不一致：旁边有其他文件，或有人写入。请复制到别处。",
    },
    "refuse.store.bad_copy": {
        "en": "the copy {path} is not sound ({error}), and so the store is not; rerail doctor says more",
        "zh": "副本 {path} 不完好（{error}），说明存储本身已损坏；rerail doctor 会说明详情",
    },
    "cli.arg.doctor.repair": {
        "en": "Mend what loses nothing: leases of dead processes, actions that nobody will answer, what belongs to no run.",
        "zh": "修复不会丢失任何东西的问题：已死进程的租约、无人答复的操作、不属于任何任务的内容。",
    },
    "cli.arg.doctor.quick": {"en": "Do not read the runs of the store.", "zh": "不读取存储中的任务。"},
    "cli.doctor.sound": {"en": "{runs:run|runs} read, nothing wrong", "zh": "已读取 {runs} 个任务，没有问题"},
    "cli.doctor.found": {
        "en": "{runs:run|runs} read, {n:thing|things} found",
        "zh": "已读取 {runs} 个任务，发现 {n} 处",
    },
    "cli.hint.store_broken": {
        "en": "If {url} should hold runs, restore a backup in its place, its -wal and -shm files removed.",
        "zh": "如果 {url} 中本应有任务，请在原处恢复备份，并删除其 -wal 和 -shm 文件。",
    },
    "cli.doctor.mended": {"en": "mended", "zh": "已修复"},
    "cli.doctor.more": {"en": "… and {n} more of this kind", "zh": "……同类还有 {n} 处"},
    "doctor.pages": {"en": "the file is damaged: {error}", "zh": "文件已损坏：{error}"},
    "doctor.unlisted": {"en": "the list of runs cannot be read: {error}", "zh": "无法读取任务列表：{error}"},
    "doctor.unreadable": {"en": "it cannot be read: {error}", "zh": "无法读取：{error}"},
    "doctor.gap": {
        "en": "its history lacks the events {first} to {last}",
        "zh": "它的历史缺少第 {first} 到第 {last} 个事件",
    },
    "doctor.no_event": {
        "en": "event {seq} of its history is damaged: {error}",
        "zh": "它的历史中第 {seq} 个事件已损坏：{error}",
    },
    "doctor.newer": {
        "en": "event {seq} of its history is of a newer version: {error}",
        "zh": "它的历史中第 {seq} 个事件来自更新的版本：{error}",
    },
    "doctor.short": {
        "en": "its history ends at event {seq}, and should have {head}",
        "zh": "它的历史止于第 {seq} 个事件，应有 {head} 个",
    },
    "doctor.status": {
        "en": "it is listed as {status}, and its history does not end so",
        "zh": "列表中它的状态是 {status}，但历史并非如此结束",
    },
    "doctor.content.output": {
        "en": "the output of step {step} (content {digest})",
        "zh": "步骤 {step} 的输出（内容 {digest}）",
    },
    "doctor.content.args": {
        "en": "what step {step} was called with (content {digest})",
        "zh": "步骤 {step} 的调用参数（内容 {digest}）",
    },
    "doctor.content.missing": {"en": "{what} is missing", "zh": "{what}缺失"},
    "doctor.content.corrupt": {"en": "{what} is not what its name says", "zh": "{what}与其摘要不符"},
    "doctor.content.unreadable": {"en": "{what} cannot be read: {error}", "zh": "{what}无法读取：{error}"},
    "doctor.lease": {"en": "it is held by {owner}, which is dead", "zh": "它由 {owner} 持有，而该进程已不存在"},
    "doctor.copy": {"en": "a copy of it broke off, and it is not whole", "zh": "复制中断，它并不完整"},
    "doctor.wish": {
        "en": "{n:action waits|actions wait} for an answer, and nobody drives it",
        "zh": "{n} 个操作在等待答复，但无人运行它",
    },
    "doctor.unanswered": {
        "en": "nobody answered this before run {run} came to rest; ask again",
        "zh": "在任务 {run} 结束之前无人答复此操作；请重新提出",
    },
    "doctor.orphans.histories": {
        "en": "{n:history|histories} of runs that the list of runs lacks",
        "zh": "{n} 份历史所属的任务不在任务列表中",
    },
    "doctor.orphans.contents": {"en": "{n:content|contents} that no run refers to", "zh": "{n} 项内容没有任务引用"},
    "doctor.orphans.actions": {
        "en": "{n:action|actions} on runs that are not there",
        "zh": "{n} 个操作所属的任务已不存在",
    },
    "doctor.workspace": {"en": "a folder of no run in this store", "zh": "该文件夹不属于此存储中的任何任务"},
    "doctor.hint.pages": {
        "en": "Restore a backup. What can still be read: rerail export --all --store THIS_FILE --output FILE, then rerail import FILE --own --store NEW_FILE",
        "zh": "请恢复备份。仍可读取的部分：先 rerail export --all --store 本文件 --output FILE，再 rerail import FILE --own --store 新文件",
    },
    "doctor.hint.history": {
        "en": "Nobody can make it up: take the run from a backup, or run its plan anew.",
        "zh": "无法凭空补回：请从备份取回该任务，或重新运行其计划。",
    },
    "doctor.hint.unlisted": {
        "en": "The list of runs has lost something: restore a backup. Nothing of these histories is ever cleared.",
        "zh": "任务列表有缺失：请恢复备份。这些历史不会被清理。",
    },
    "doctor.hint.content": {
        "en": "The step that made it can make it again: rerail retry {run} --step {step} --force",
        "zh": "产生它的步骤可以重新产生：rerail retry {run} --step {step} --force",
    },
    "doctor.hint.content_elsewhere": {
        "en": "The rest of the run can be read. Save the store first (rerail export --all --store THIS_FILE --output FILE, then "
        "rerail import FILE --own --store NEW_FILE); there, the step that made it can make it again: rerail retry {run} --step {step} --force --store NEW_FILE",
        "zh": "该任务的其余部分可以读取。请先保存存储（rerail export --all --store 本文件 --output FILE，再 rerail import FILE --own --store 新文件）；"
        "在那里，产生它的步骤可以重新产生：rerail retry {run} --step {step} --force --store 新文件",
    },
    "doctor.hint.copy": {
        "en": "Import it again: rerail import FILE",
        "zh": "请重新导入：rerail import FILE",
    },
    "doctor.hint.workspace": {
        "en": "If no other store has it, remove it by hand.",
        "zh": "如果没有其他存储使用它，请手动删除。",
    },
}
