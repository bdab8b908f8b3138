"""Sentences about files, stages and the report of a retry, in both languages (T1, T3, T12)."""

from __future__ import annotations

FILES: dict[str, dict[str, str]] = {
    # Plans.
    "refuse.plan.file_no_name": {"en": "produces: {path!r} names no file", "zh": "produces：{path!r} 不是文件名"},
    "refuse.plan.file_outside": {
        "en": "produces: {path!r} leaves the run's workspace; write a path inside it",
        "zh": "produces：{path!r} 超出任务工作目录；请使用目录内的路径",
    },
    "refuse.plan.file_reserved": {
        "en": "produces: {path!r} is a name that Rerail uses itself; choose another",
        "zh": "produces：{path!r} 是 Rerail 自用的名称；请换一个",
    },
    "refuse.plan.file_twice": {
        "en": "produces: {path!r} is made by step {step!r} already; a file is one step's alone",
        "zh": "produces：{path!r} 已由步骤 {step!r} 生成；一个文件只能属于一个步骤",
    },
    "refuse.plan.file_is_folder": {
        "en": "produces: {path!r} is to be a file, and {inside!r} needs a folder there",
        "zh": "produces：{path!r} 应为文件，而 {inside!r} 需要在那里有一个目录",
    },
    "refuse.plan.file_format": {
        "en": "produces: {format!r} is no format that is known; write {known}",
        "zh": "produces：未知格式 {format!r}；可用 {known}",
    },
    # What is wrong with a file.
    "reason.file.outside": {"en": "the path leaves the run's workspace", "zh": "路径超出任务工作目录"},
    "reason.file.missing": {"en": "it is not there ({reason})", "zh": "文件不存在（{reason}）"},
    "reason.file.no_file": {"en": "it is no file", "zh": "它不是普通文件"},
    "reason.file.empty": {"en": "it is empty", "zh": "文件为空"},
    "reason.file.not_json": {"en": "it is not JSON: {reason}", "zh": "不是有效的 JSON：{reason}"},
    "reason.file.aliases": {
        "en": "its aliases stand for more than {limit} values, or for themselves: it is not read",
        "zh": "其中的别名展开后超过 {limit} 个值，或引用了自身：不予读取",
    },
    "reason.file.not_yaml": {"en": "it is not YAML: {reason}", "zh": "不是有效的 YAML：{reason}"},
    "reason.file.not_text": {"en": "it is not UTF-8 text", "zh": "不是 UTF-8 文本"},
    "reason.file.lacks": {"en": "it lacks {keys}", "zh": "它缺少 {keys}"},
    "reason.file.too_large": {"en": "it is larger than {limit:,} bytes", "zh": "超过 {limit:,} 字节"},
    "reason.file.changed": {
        "en": "it was changed after its step had written it",
        "zh": "文件在步骤写入之后被改动",
    },
    "reason.file.checked": {"en": "the check {tool!r} says no: {reason}", "zh": "检查 {tool!r} 未通过：{reason}"},
    "refuse.run.file_of_once": {
        "en": "{path} cannot be kept ({reason}), and step {step!r}, which made it, must not happen twice",
        "zh": "{path} 不可保留（{reason}），而生成它的步骤 {step!r} 不得重复执行",
    },
    "hint.run.file_of_once": {
        "en": "put the file back as it was, or do the step again all the same: rerail retry {run} --force",
        "zh": "恢复该文件，或仍要重新执行：rerail retry {run} --force",
    },
    "refuse.run.no_backup": {
        "en": "the files could not be backed up, so nothing was started over: {reason}",
        "zh": "无法备份文件，因此没有重新开始：{reason}",
    },
    "hint.run.no_backup": {
        "en": "make room or mend the file's permissions in {folder}, then try again",
        "zh": "请在 {folder} 中腾出空间或修复文件权限后重试",
    },
    "refuse.run.superseded": {
        "en": "run {run} is over: what it follows has completed again since, and {newest} took its place",
        "zh": "任务 {run} 已被取代：其所接续的任务后来又完成了一次，由 {newest} 接替",
    },
    "hint.run.superseded": {"en": "use: rerail retry {parent}", "zh": "使用：rerail retry {parent}"},
    "refuse.run.unseen": {
        "en": "step {step!r} was not confirmed: what it reads is not what was made ({reason})",
        "zh": "步骤 {step!r} 未被确认：它读取的内容与生成时不同（{reason}）",
    },
    "hint.run.unseen": {
        "en": "to take it as it is now: rerail confirm {run} --edit {path}; "
        "to have it made again: rerail retry {run} --step {step} --force",
        "zh": "按现在的内容确认：rerail confirm {run} --edit {path}；重新生成：rerail retry {run} --step {step} --force",
    },
    "hint.run.no_such_file": {
        "en": "if that is what your file is called: rerail confirm {run} --edit {name}={file}",
        "zh": "如果您的文件叫这个名字：rerail confirm {run} --edit {name}={file}",
    },
    "refuse.run.no_files": {
        "en": "step {step!r} cannot be declared succeeded: what it was to leave behind is not there or not valid ({reason})",
        "zh": "无法将步骤 {step!r} 设为成功：它应生成的文件不存在或无效（{reason}）",
    },
    "refuse.run.no_such_file": {
        "en": "step {step!r} reads no file {name!r}; it reads: {files}",
        "zh": "步骤 {step!r} 不读取文件 {name!r}；它读取：{files}",
    },
    "refuse.run.edit_invalid": {
        "en": "{path} was not replaced, and nothing confirmed: {reason}",
        "zh": "{path} 未被替换，也没有确认：{reason}",
    },
    "refuse.run.edit_unreadable": {
        "en": "cannot read {path}: {reason}",
        "zh": "无法读取 {path}：{reason}",
    },
    "error.FILES_INVALID": {
        "en": "a file that the step produces is not valid: {faults}",
        "zh": "该步骤生成的文件无效：{faults}",
    },
    "error.FILE_DAMAGED": {
        "en": "{files} of step {step!r} cannot be used: {reason}",
        "zh": "步骤 {step!r} 的文件 {files} 不可用：{reason}",
    },
    "error.FILE_DAMAGED_ABOVE": {
        "en": "{files} of run {parent} cannot be used: {reason}; rerail retry makes it again",
        "zh": "任务 {parent} 的文件 {files} 不可用：{reason}；请使用 rerail retry 重新生成",
    },
    "error.FILE_NOT_ARCHIVED": {
        "en": "the step's old files could not be put aside, so its tool was not called: {reason}",
        "zh": "无法归档该步骤的旧文件，因此没有调用工具：{reason}",
    },
    "error.FILE_OUTSIDE": {
        "en": "{path!r} leaves the run's workspace",
        "zh": "{path!r} 超出任务工作目录",
    },
    "cli.status.paused": {"en": "paused", "zh": "已暂停"},
    "cli.status.in_doubt": {"en": "in doubt", "zh": "结果不明"},
    "cli.status.awaiting_confirm": {"en": "awaiting_confirm", "zh": "等待确认"},
    "why.edited": {"en": "(with another {files})", "zh": "（替换了 {files}）"},
    "cli.report.at_stage": {"en": "at the stage {stage}:", "zh": "于阶段 {stage}："},
    "cli.report.follow_up": {"en": "What follows it", "zh": "后续任务"},
    "cli.wait.files": {"en": "(it reads {files})", "zh": "（它读取 {files}）"},
    "cli.confirm.edit_or_refuse": {
        "en": "--edit, --args and --ahead go with a yes, not with --refuse",
        "zh": "--edit、--args 和 --ahead 不能与 --refuse 一起使用",
    },
    "cli.confirm.edited": {"en": "edited: {call}", "zh": "已修改：{call}"},
    "cli.confirm.ask": {"en": "Agree to exactly this call? [y/N]", "zh": "同意这次调用吗？[y/N]"},
    "cli.confirm.declined": {"en": "nothing was confirmed", "zh": "没有确认任何调用"},
    # The report of a retry; the Chinese is fixed by the contract.
    "report.retry.title": {"en": "🔄 Retrying run {run}", "zh": "🔄 准备重试任务 {run}"},
    "report.retry.status": {"en": "  ✅ status: {status}", "zh": "  ✅ 任务状态: {status}"},
    "report.retry.stage": {"en": "  ✅ failed stage: {stage}", "zh": "  ✅ 失败阶段: {stage}"},
    "report.retry.count": {"en": "  ✅ retries of the run: {count}/{of}", "zh": "  ✅ 重试次数: {count}/{of}"},
    "report.retry.retryable": {"en": "  ✅ the error can be retried", "zh": "  ✅ 错误可重试"},
    "report.retry.error_passed": {
        "en": "  ⚠️  the error cannot be mended by trying again (passed by --force)",
        "zh": "  ⚠️  错误不可重试（--force 已忽略）",
    },
    "report.retry.limit_passed": {
        "en": "  ⚠️  the retry limit was passed by --force",
        "zh": "  ⚠️  已超过重试次数限制（--force 已忽略）",
    },
    "report.retry.damaged": {
        "en": "⚠️  {path} cannot be kept ({reason}); the stage {stage} runs again",
        "zh": "⚠️  {path} 已损坏，将重新{stage}",
    },
    "report.retry.partial": {"en": "📋 Strategy: partial retry", "zh": "📋 重试策略: 部分重试"},
    "report.retry.clean": {"en": "📋 Strategy: start over", "zh": "📋 重试策略: 完全重试"},
    "report.retry.files": {"en": "  - kept files: {files}", "zh": "  - 保留文件: {files}"},
    "report.retry.no_files": {"en": "none", "zh": "无"},
    "report.retry.backup": {"en": "  - backup: {backup}", "zh": "  - 备份: {backup}"},
    "report.retry.backup_first": {"en": "made first, in the workspace", "zh": "先在工作目录中备份所有文件"},
    "report.retry.from": {"en": "  - from the stage {stage} on", "zh": "  - 从{stage}阶段重新开始"},
    "report.retry.from_start": {"en": "  - from the beginning", "zh": "  - 从头开始"},
    "report.retry.starting": {"en": "🚀 Starting a worker …", "zh": "🚀 正在启动重试进程..."},
    "report.retry.pid": {"en": "  pid: {pid}", "zh": "  进程ID: {pid}"},
    "report.retry.logs": {
        "en": "💡 Follow it: rerail logs {run} --tail 50 --follow{where}",
        "zh": "💡 查看实时日志: /logs {run} --tail 50",
    },
    "report.refused.RETRY_LIMIT": {
        "en": "❌ run {run} has used up its retries ({max_retries})\n"
        "   - start over: rerail retry {run} --clean\n"
        "   - retry all the same: rerail retry {run} --force",
        "zh": "❌ 任务已达到最大重试次数 ({max_retries})\n"
        "   - 使用 '/retry {run} --clean' 完全重新开始\n"
        "   - 使用 '/retry {run} --force' 强制重试（忽略次数限制）",
    },
    "report.refused.NOT_RETRYABLE": {
        "en": "❌ this error cannot be mended by trying again: {reason}\n   mend what it names first",
        "zh": "❌ 此错误不可重试: {reason}\n   请先修复配置问题",
    },
    "report.refused.RUN_LIVE": {
        "en": "⚠️  the run is in the hands of another process",
        "zh": "⚠️  任务正在被另一个进程重试",
    },
    # What the stages of a staged task are called, where a sentence names them.
    "stage.extracting": {"en": "extracting", "zh": "提取"},
    "stage.retrieving": {"en": "retrieving", "zh": "检索"},
    "stage.generating": {"en": "generating", "zh": "生成"},
    "stage.evaluating": {"en": "evaluating", "zh": "评估"},
    "stage.reflecting": {"en": "reflecting", "zh": "反思"},
    "stage.curating": {"en": "curating", "zh": "策展"},
}
