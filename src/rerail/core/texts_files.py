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
    "refuse.plan.file_format": {
        "en": "produces: {format!r} is no format that is known; write {known}",
        "zh": "produces：未知格式 {format!r}；可用 {known}",
    },
    # What is wrong with a file.
    "file.outside": {"en": "the path leaves the run's workspace", "zh": "路径超出任务工作目录"},
    "file.missing": {"en": "it is not there ({reason})", "zh": "文件不存在（{reason}）"},
    "file.no_file": {"en": "it is no file", "zh": "它不是普通文件"},
    "file.empty": {"en": "it is empty", "zh": "文件为空"},
    "file.not_json": {"en": "it is not JSON: {reason}", "zh": "不是有效的 JSON：{reason}"},
    "file.not_yaml": {"en": "it is not YAML: {reason}", "zh": "不是有效的 YAML：{reason}"},
    "file.not_text": {"en": "it is not UTF-8 text", "zh": "不是 UTF-8 文本"},
    "file.lacks": {"en": "it lacks {keys}", "zh": "缺少 {keys}"},
    "file.too_large": {"en": "it is larger than {limit:,} bytes", "zh": "超过 {limit:,} 字节"},
    "file.changed": {
        "en": "it was changed after its step had written it",
        "zh": "文件在步骤写入之后被改动",
    },
    "file.checked": {"en": "the check {tool!r} says no: {reason}", "zh": "检查 {tool!r} 未通过：{reason}"},
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
}
