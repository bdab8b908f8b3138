"""What is wrong with a plan."""

from __future__ import annotations

PLANS: dict[str, dict[str, str]] = {
    # Plans that cannot be read or run.
    "refuse.plan.duplicate_id": {
        "en": "the id is used {count} times; ids must be unique",
        "zh": "该编号使用了 {count} 次；编号必须唯一",
    },
    "refuse.plan.cycle": {
        "en": "the steps need each other in a circle: {path}; remove one of these needs",
        "zh": "步骤循环依赖：{path}；请去掉其中一个依赖",
    },
    "refuse.plan.bad_args": {
        "en": "args{where} for tool {name!r}: {message}",
        "zh": "工具 {name!r} 的 args{where}：{message}",
    },
    "refuse.plan.unknown_key": {"en": "unknown key {prefix}{key!r}", "zh": "未知的键 {prefix}{key!r}"},
    "refuse.plan.unknown_key_near": {
        "en": "unknown key {prefix}{key!r}; did you mean {near!r}?",
        "zh": "未知的键 {prefix}{key!r}；您是不是要找 {near!r}？",
    },
    "refuse.plan.no_reference": {
        "en": "{error} is not a reference; write ${{step.path}}, or $${{ for a literal ${{",
        "zh": "{error} 不是引用；请写成 ${{step.path}}，字面的 ${{ 写成 $${{",
    },
    "refuse.plan.no_such_step": {"en": "unknown step {name!r}", "zh": "未知的步骤 {name!r}"},
    "refuse.plan.no_such_step_near": {
        "en": "unknown step {name!r}; did you mean {near!r}?",
        "zh": "未知的步骤 {name!r}；您是不是要找 {near!r}？",
    },
    "refuse.plan.no_such_tool": {"en": "unknown tool {name!r}", "zh": "未知的工具 {name!r}"},
    "refuse.plan.no_such_tool_near": {
        "en": "unknown tool {name!r}; did you mean {near!r}?",
        "zh": "未知的工具 {name!r}；您是不是要找 {near!r}？",
    },
    "refuse.plan.holds_no_steps": {
        "en": "{source} holds no steps; write a list of steps",
        "zh": "{source} 不含步骤；请写一个步骤列表",
    },
    "refuse.plan.of_step": {"en": "step {step!r}: {message}", "zh": "步骤 {step!r}：{message}"},
    "refuse.plan.more_faults": {"en": "… and {count} more", "zh": "……另有 {count} 处"},
    "refuse.plan.no_steps": {"en": "the plan has no steps; add at least one", "zh": "计划没有步骤；请至少添加一个"},
    "refuse.plan.unknown_tool": {"en": "{unknown}", "zh": "{unknown}"},
    "refuse.plan.self_need": {"en": "the step needs itself; remove that need", "zh": "步骤依赖自身；请去掉该依赖"},
    "refuse.plan.unknown_reference": {
        "en": "{error} refers to {hint} (write $${{ for a literal ${{)",
        "zh": "{error} 引用了{hint}（字面的 ${{ 写成 $${{）",
    },
    "refuse.plan.unknown_alternative": {"en": "alternatives: {unknown}", "zh": "alternatives：{unknown}"},
    "refuse.plan.unknown_need": {"en": "needs {unknown}", "zh": "依赖有误：{unknown}"},
    "refuse.plan.too_large": {"en": "{path} is larger than {limit:,} bytes", "zh": "{path} 超过 {limit:,} 字节"},
    "refuse.plan.no_file": {"en": "there is no plan file {path!r}", "zh": "没有计划文件 {path!r}"},
    "refuse.plan.not_utf8": {"en": "{path} is not UTF-8 text: {reason}", "zh": "{path} 不是 UTF-8 文本：{reason}"},
    "refuse.plan.cannot_read": {"en": "cannot read {path!r}: {error}", "zh": "无法读取 {path!r}：{error}"},
    "refuse.plan.key_twice": {
        "en": "cannot read the plan: {name}: the key {twice!r} is there twice",
        "zh": "无法读取计划：{name}：键 {twice!r} 出现了两次",
    },
    "refuse.plan.no_yaml": {
        "en": "cannot read the plan: {name} is neither YAML nor JSON: {detail}",
        "zh": "无法读取计划：{name} 既不是 YAML 也不是 JSON：{detail}",
    },
    "refuse.plan.too_many_follow": {
        "en": "more than {most} plans follow each other",
        "zh": "相互接续的计划超过 {most} 个",
    },
    "refuse.plan.too_many_steps": {
        "en": "the plan has {count:,} steps, and {most:,} is the most that one run takes. Make several runs of it, or one step of what is alike",
        "zh": "计划有 {count:,} 个步骤，一个任务最多 {most:,} 个。请分成多个任务，或把同类的合为一个步骤",
    },
    "refuse.plan.aliases": {
        "en": "{name} stands for far more than it says, through its aliases",
        "zh": "{name} 通过别名展开后远远超过其书写的内容",
    },
    "refuse.plan.too_deep": {
        "en": "cannot read the plan: {name} is nested too deeply",
        "zh": "无法读取计划：{name} 嵌套过深",
    },
    "refuse.plan.no_plan": {"en": "cannot read the plan: {error}", "zh": "无法读取计划：{error}"},
    "refuse.plan.empty": {"en": "cannot read the plan: {name} is empty", "zh": "无法读取计划：{name} 是空的"},
    "refuse.plan.steps_missing": {
        "en": "the plan has no 'steps'; write steps: [{{id: …, tool: …}}]",
        "zh": "计划没有 'steps'；请写 steps: [{{id: …, tool: …}}]",
    },
    "refuse.plan.steps_no_list": {
        "en": "'steps' is a list of steps, not {kind}",
        "zh": "'steps' 应为步骤列表，而不是 {kind}",
    },
    "refuse.plan.no_mapping": {
        "en": "a plan is a mapping with 'steps', not {kind}",
        "zh": "计划应为含 'steps' 的映射，而不是 {kind}",
    },
    "refuse.plan.given_twice": {
        "en": "{prefix}{name!r} is given twice (as {key!r} too)",
        "zh": "{prefix}{name!r} 给出了两次（另有 {key!r}）",
    },
    "refuse.plan.args_not_json": {"en": "args: they are not plain JSON: {error}", "zh": "args：不是纯 JSON：{error}"},
    "refuse.plan.step_not_json": {
        "en": "the step cannot be written down: {error}",
        "zh": "该步骤无法写入历史：{error}",
    },
    "refuse.plan.args_too_deep": {"en": "args: they are nested too deeply", "zh": "args：嵌套过深"},
    "refuse.plan.expected": {
        "en": "{name}: expected {expected}, got {kind}",
        "zh": "{name}：应为 {expected}，实际为 {kind}",
    },
    "refuse.plan.tool_missing": {
        "en": "the step has no 'tool'; name the tool to call",
        "zh": "步骤没有 'tool'；请写出要调用的工具",
    },
    "refuse.plan.id_empty": {"en": "the id is empty; give the step a name", "zh": "编号为空；请给步骤命名"},
    "refuse.plan.id_too_long": {"en": "the id is longer than {limit} characters", "zh": "编号超过 {limit} 个字符"},
    "refuse.plan.either_value_or_tool": {
        "en": "{name}: give either 'value' or 'tool'",
        "zh": "{name}：请给出 'value' 或 'tool' 之一",
    },
    "refuse.plan.schema_faulty": {"en": "{name}.schema: {problem}", "zh": "{name}.schema：{problem}"},
    "refuse.plan.follow_up_unreadable": {"en": "follow_up: {error}", "zh": "follow_up：{error}"},
    "refuse.plan.step_no_mapping": {
        "en": "steps[{index}] is {kind}; a step is a mapping with 'tool'",
        "zh": "steps[{index}] 是 {kind}；步骤应为含 'tool' 的映射",
    },
    "refuse.plan.objective_no_text": {
        "en": "objective: expected a text, got {kind}",
        "zh": "objective：应为文本，实际为 {kind}",
    },
    "refuse.plan.in_follow_up": {"en": "follow_up: {message}", "zh": "follow_up：{message}"},
    "refuse.plan.self_reference": {"en": "{ref} refers to the step's own output", "zh": "{ref} 引用了步骤自己的输出"},
    "refuse.plan.no_key": {
        "en": "idempotent_for: tool {name!r} does not hand its idempotency key on. Give it a ctx parameter or {{key}}, or leave it out",
        "zh": "idempotent_for：工具 {name!r} 不会传递幂等键。请为它加上 ctx 参数或 {{key}}，或去掉该项",
    },
    "refuse.plan.verify_acts": {
        "en": "verify only looks, and what tool {name!r} does must not happen twice; name one that reads, or declare "
        "effect: read if this one does",
        "zh": "verify 只能查看，而工具 {name!r} 的效果不能发生两次；请换用只读工具，若它只读请声明 effect: read",
    },
    "refuse.plan.unknown_other_tool": {"en": "{label}: {unknown}", "zh": "{label}：{unknown}"},
    "plan.kind.flag": {"en": "true or false", "zh": "true 或 false"},
    "plan.kind.gate": {"en": "true, false or a question", "zh": "true、false 或一个问题"},
    "plan.kind.count": {"en": "a whole number of 0 or more", "zh": "不小于 0 的整数"},
    "plan.kind.whole": {"en": "a whole number", "zh": "整数"},
    "plan.kind.settle": {"en": "a number of seconds, or never", "zh": "秒数，或 never"},
    "plan.kind.on_doubt": {"en": "wait or fail", "zh": "wait 或 fail"},
    "plan.kind.seconds": {"en": "a number of seconds above 0", "zh": "大于 0 的秒数"},
    "plan.kind.mapping": {"en": "a mapping with text keys", "zh": "以文本为键的映射"},
    "plan.kind.names": {"en": "a list of names", "zh": "名称列表"},
    "plan.kind.files": {"en": "a list of file names", "zh": "文件名列表"},
    "plan.kind.amounts": {
        "en": "a mapping of resource to an amount of 0 or more",
        "zh": "资源到数量（不小于 0）的映射",
    },
    "plan.kind.effect": {"en": "read, repeatable or once", "zh": "read、repeatable 或 once"},
    "plan.kind.fallback": {"en": "{{value: …}} or {{tool: …, args: …}}", "zh": "{{value: …}} 或 {{tool: …, args: …}}"},
    "plan.kind.trust": {"en": "true, false or {{ignore, suspect}}", "zh": "true、false 或 {{ignore, suspect}}"},
    "plan.kind.signs": {"en": "a list of texts and objects", "zh": "文本和对象的列表"},
    "plan.kind.when": {"en": "success, done or failure", "zh": "success、done 或 failure"},
    "plan.kind.steps": {"en": "step ids", "zh": "步骤编号"},
    "plan.key_twice": {"en": "the key {key!r} is there twice", "zh": "键 {key!r} 出现了两次"},
    "plan.key_text": {"en": "a key must be a text", "zh": "键必须是文本"},
    "refuse.plan.effect_undeclared": {
        "en": "the effect of tool {name!r} is not declared, and tools.require_effect is set. Write"
        ' @rerail.tool(effect="read"), "repeatable" or "once"; or effect: in the step',
        "zh": "工具 {name!r} 未声明 effect，而 tools.require_effect 已启用。请写"
        ' @rerail.tool(effect="read")、"repeatable" 或 "once"；或在步骤中写 effect:',
    },
    "warn.plan.assumed": {
        "en": 'assumed repeatable (called again after a failure): {names}. Declare it: @rerail.tool(effect="once")',
        "zh": '假定可重复（失败后会再次调用）：{names}。请声明：@rerail.tool(effect="once")',
    },
    "refuse.plan.mcp": {
        "en": "the plan names MCP servers ({names}): servers are named in the settings. Write them under [mcp.servers] in"
        " rerail.toml, and remove mcp from the plan",
        "zh": "计划指定了 MCP 服务器（{names}），而服务器应在设置中指定。请把它们写在 rerail.toml 的 [mcp.servers] 下，"
        "并从计划中删除 mcp",
    },
    "refuse.mcp.from_plans": {
        "en": "{what} is gone: plans no longer open MCP servers",
        "zh": "{what} 已取消：计划不再启动 MCP 服务器",
    },
    "hint.mcp.from_plans": {
        "en": "remove it, and name the servers of your plans in the settings under [mcp.servers]",
        "zh": "请删除它，并在设置的 [mcp.servers] 中指定计划所用的服务器",
    },
    "plan.server": {"en": "MCP server {server!r}", "zh": "MCP 服务器 {server!r}"},
    "plan.own_tool": {"en": "a tool of yours", "zh": "您自己的工具"},
    "plan.kind.text": {"en": "a text", "zh": "文本"},
    "plan.kind.list": {"en": "a list", "zh": "列表"},
    "plan.kind.a_mapping": {"en": "a mapping", "zh": "映射"},
    "plan.kind.nothing": {"en": "nothing", "zh": "空"},
    "plan.the_text": {"en": "the text", "zh": "所给文本"},
}
