"""What is wrong with settings, models, prompts and MCP servers, and what to do instead."""

from __future__ import annotations

SETUP: dict[str, dict[str, str]] = {
    # Minds and models.
    "refuse.mind.no_steps": {"en": "the new plan has no steps", "zh": "新计划没有步骤"},
    "refuse.mind.repeats": {
        "en": "it would repeat what step {step!r} has done, or may have; that must not happen twice",
        "zh": "它会重复步骤 {step!r} 已经或可能已经产生的效果，而效果不能发生两次",
    },
    "refuse.mind.repair_unchanged": {
        "en": "the repaired step is the failed one, unchanged",
        "zh": "修复后的步骤与失败的步骤相同，没有变化",
    },
    "refuse.mind.repair_keeps_this_id": {
        "en": "a repair keeps the id {id!r}; got {id2!r}",
        "zh": "修复必须保持编号 {id!r}；实际为 {id2!r}",
    },
    "refuse.mind.not_yours": {"en": "{name}: {why}; leave it out", "zh": "{name}：{why}；请去掉它"},
    "refuse.mind.repair_keeps_id": {"en": "a repair keeps the id; got {id!r}", "zh": "修复必须保持编号；实际为 {id!r}"},
    "refuse.mind.repair_keeps_tool": {
        "en": "a repair keeps the tool {old!r} here ({category}: nothing was said against the tool itself); got {tool!r}",
        "zh": "此处修复必须保留工具 {old!r}（{category}：工具本身没有问题）；实际为 {tool!r}",
    },
    "refuse.mind.prompt_unusable": {
        "en": "cannot use the prompt {path!r}: {error}",
        "zh": "无法使用提示词 {path!r}：{error}",
    },
    "refuse.mind.no_extra": {
        "en": "models need an extra that is not installed",
        "zh": "使用模型需要尚未安装的附加组件",
    },
    "refuse.mind.no_model_named": {
        "en": "model {name!r} names a provider and no model; write provider:model",
        "zh": "模型 {name!r} 只写了提供方而没有模型；请写成 provider:model",
    },
    "refuse.mind.no_provider": {
        "en": "model {name!r} does not say whose it is; write {example} or set model.base_url",
        "zh": "模型 {name!r} 没有说明提供方；请写成 {example}，或设置 model.base_url",
    },
    "refuse.mind.no_prompts": {
        "en": "model.prompts: there is no folder {folder!r}; make one with: rerail prompts eject",
        "zh": "model.prompts：没有目录 {folder!r}；可用以下命令创建：rerail prompts eject",
    },
    "hint.mind.no_extra": {"en": "pip install 'rerail[llm]'", "zh": "pip install 'rerail[llm]'"},
    # Settings and MCP servers.
    "hint.mcp.mend": {
        "en": "mend mcp.servers.{server} in rerail.toml, or take it out",
        "zh": "请修正 rerail.toml 中的 mcp.servers.{server}，或将其删除",
    },
    "hint.mcp.start_or_mend": {
        "en": "start the server, or mend mcp.servers.{server} in rerail.toml, or take it out",
        "zh": "请启动该服务器，或修正 rerail.toml 中的 mcp.servers.{server}，或将其删除",
    },
    "refuse.settings.unknown": {
        "en": "unknown setting {what} (from {source}); known: {known}",
        "zh": "未知的设置 {what}（来自 {source}）；可用：{known}",
    },
    "refuse.settings.unknown_near": {
        "en": "unknown setting {what} (from {source}); did you mean {near!r}?",
        "zh": "未知的设置 {what}（来自 {source}）；您是不是要找 {near!r}？",
    },
    "refuse.settings.choices": {
        "en": "{name} = {found!r} (from {source}): expected one of {choices}",
        "zh": "{name} = {found!r}（来自 {source}）：应为 {choices} 之一",
    },
    "refuse.settings.infinite": {
        "en": "{name} = {found!r} (from {source}): a number that is infinite or none at all cannot be kept; use a large one",
        "zh": "{name} = {found!r}（来自 {source}）：无穷大或非数值无法保存；请用一个大的数",
    },
    "refuse.settings.too_low": {
        "en": "{name} = {found!r} (from {source}): must be at least {lowest:g}",
        "zh": "{name} = {found!r}（来自 {source}）：不得小于 {lowest:g}",
    },
    "refuse.settings.no_address": {
        "en": "{name} = {found!r} (from {source}): write an address such as http://localhost:11434/v1",
        "zh": "{name} = {found!r}（来自 {source}）：请写地址，例如 http://localhost:11434/v1",
    },
    "refuse.settings.no_variable": {
        "en": "{name} (from {source}): name the environment variable that holds the key, not the key",
        "zh": "{name}（来自 {source}）：请写保存密钥的环境变量名，而不是密钥本身",
    },
    "refuse.settings.window": {
        "en": "{name} = {found!r} (from {source}): write the fewest events first, then the most",
        "zh": "{name} = {found!r}（来自 {source}）：请先写最少事件数，再写最多事件数",
    },
    "refuse.settings.pattern": {"en": "{name} (from {source}): {message}", "zh": "{name}（来自 {source}）：{message}"},
    "refuse.settings.wrong_kind": {
        "en": "{name} = {shown} (from {source}): {error}",
        "zh": "{name} = {shown}（来自 {source}）：{error}",
    },
    "refuse.settings.cannot_read": {"en": "cannot read {path}: {error}", "zh": "无法读取 {path}：{error}"},
    "refuse.settings.set_how": {
        "en": "--set {pair!r}: write table.key=value, for example retry.max_retries=5",
        "zh": "--set {pair!r}：请写成 table.key=value，例如 retry.max_retries=5",
    },
    "refuse.settings.no_table": {
        "en": "[{table}] is a table of keys (from {source})",
        "zh": "[{table}] 应为由键组成的表（来自 {source}）",
    },
    "refuse.settings.nested_table": {
        "en": "[{table}.{key}] is a table of keys (from {source})",
        "zh": "[{table}.{key}] 应为由键组成的表（来自 {source}）",
    },
    "refuse.settings.store_unknown": {
        "en": "unknown store address {url!r}; write sqlite:///path/to/runs.db, postgresql://user@host/database, redis://host:6379/0 or memory://",
        "zh": "未知的存储地址 {url!r}；请写 sqlite:///path/to/runs.db、postgresql://user@host/database、redis://host:6379/0 或 memory://",
    },
    "refuse.settings.model_unnamed": {
        "en": "model.base_url is set, but model.name is not; name the model to use there",
        "zh": "设置了 model.base_url，但没有设置 model.name；请写出要使用的模型",
    },
    "refuse.settings.inside_a_loop": {
        "en": "rerail.run cannot be called inside an event loop; use: async with rerail.Engine(…) as engine",
        "zh": "不能在事件循环中调用 rerail.run；请使用：async with rerail.Engine(…) as engine",
    },
    "refuse.settings.store_without_file": {
        "en": "the store address {url!r} names no file; write sqlite:///path/to/runs.db",
        "zh": "存储地址 {url!r} 没有指定文件；请写成 sqlite:///path/to/runs.db",
    },
    "refuse.settings.two_tools": {
        "en": "two tools are named {name!r}; give one of them another name",
        "zh": "有两个工具都名为 {name!r}；请给其中一个改名",
    },
    "refuse.settings.two_tools_of_servers": {
        "en": "two tools are named {name!r}: one of MCP server {server!r}, one of {other}",
        "zh": "有两个工具都名为 {name!r}：一个来自 MCP 服务器 {server!r}，一个来自{other}",
    },
    "hint.settings.two_tools_of_servers": {
        "en": 'write prefix = "{server}." in mcp.servers.{server}, and name the tool {server}.{name} in plans',
        "zh": '请在 mcp.servers.{server} 中写 prefix = "{server}."，并在计划中使用 {server}.{name}',
    },
    "refuse.settings.plan_or_objective": {"en": "give either a plan or an objective", "zh": "请提供计划或目标之一"},
    "refuse.settings.fallback_faulty": {
        "en": "the fallback plan cannot be run; nothing was started:",
        "zh": "后备计划无法执行；没有启动任何步骤：",
    },
    "refuse.settings.planning_failed": {
        "en": "no plan was made for the objective: {problem}",
        "zh": "没有为该目标生成计划：{problem}",
    },
    "refuse.mcp.no_extra": {
        "en": "this needs the package 'mcp', which is not installed",
        "zh": "这需要尚未安装的 'mcp' 包",
    },
    "hint.mcp.no_extra": {"en": "pip install 'rerail[mcp]'", "zh": "pip install 'rerail[mcp]'"},
    "refuse.mcp.no_mapping": {
        "en": "{label}: expected a mapping with 'command' or 'url', got {name}",
        "zh": "{label}：应为含 'command' 或 'url' 的映射，实际为 {name}",
    },
    "refuse.mcp.faulty": {"en": "{label}: {fault}", "zh": "{label}：{fault}"},
    "refuse.mcp.command_or_url": {
        "en": "{label}: give either 'command' (a program to start) or 'url' (an address); {both}",
        "zh": "{label}：请给出 'command'（要启动的程序）或 'url'（地址）之一；{both}",
    },
    "refuse.mcp.goes_with": {
        "en": "{label}: {odd!r} goes with {value}",
        "zh": "{label}：{odd!r} 要与 {value} 一起使用",
    },
    "refuse.mcp.no_such_tool": {
        "en": "mcp.servers.{name}: the server has no tool {word!r}; {unknown}",
        "zh": "mcp.servers.{name}：服务器没有工具 {word!r}；{unknown}",
    },
    "refuse.mcp.no_plan": {
        "en": "cannot read the plan: a plan is a mapping with 'steps'",
        "zh": "无法读取计划：计划应为含 'steps' 的映射",
    },
    "refuse.mcp.starts_over": {"en": "starting over calls everything again", "zh": "从头开始会重新调用所有工具"},
    "hint.mcp.starts_over": {
        "en": "look at it with dry_run, then say confirmed: true",
        "zh": "先用 dry_run 查看，再给出 confirmed: true",
    },
    "refuse.mcp.tool_unknown": {"en": "there is no tool {name!r}", "zh": "没有工具 {name!r}"},
    "hint.mcp.tool_unknown": {"en": "there are {schemas}", "zh": "现有 {schemas}"},
    "hint.mcp.see_schema": {"en": "see the tool's schema", "zh": "请查看该工具的 schema"},
    "refuse.mcp.no_address": {"en": "{address!r} is no address", "zh": "{address!r} 不是地址"},
    "hint.mcp.no_address": {"en": "write HOST:PORT, as 127.0.0.1:8321", "zh": "请写成 HOST:PORT，例如 127.0.0.1:8321"},
    "refuse.mcp.exposed": {
        "en": "{host} can be reached by other machines, and whoever reaches it can call your tools",
        "zh": "其他机器可以访问 {host}，而能访问它的人就能调用您的工具",
    },
    "hint.mcp.exposed": {
        "en": "use 127.0.0.1; or set RERAIL_TOKEN to a secret that callers must know, and add --expose",
        "zh": "请使用 127.0.0.1；或把 RERAIL_TOKEN 设为调用者必须知道的密钥，并加上 --expose",
    },
    "refuse.mcp.cannot_listen": {"en": "cannot listen on {address}: {value}", "zh": "无法监听 {address}：{value}"},
    "source.caller": {"en": "the caller", "zh": "调用者"},
    "source.command_line": {"en": "command line", "zh": "命令行"},
    "source.environment": {"en": "environment {name}", "zh": "环境变量 {name}"},
    "source.default": {"en": "default", "zh": "默认值"},
    "setting.key": {"en": "{name} ({source})", "zh": "{name}（{source}）"},
    "setting.table": {"en": "table [{table}]", "zh": "表 [{table}]"},
    "setting.expected": {
        "en": "Expected `{expected}`, got `{kind}`{where}",
        "zh": "应为 `{expected}`，实际为 `{kind}`{where}",
    },
}
