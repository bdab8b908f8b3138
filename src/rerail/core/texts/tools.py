"""What is wrong with a tool's definition, and why a call of ours could not be made or its answer not be used."""

from __future__ import annotations

TOOLS: dict[str, dict[str, str]] = {
    "tool.isolated": {
        "en": "{name!r} cannot run isolated: a worker process finds a function by its name; define it with `def` at the top level of a module",
        "zh": "{name!r} 不能隔离运行：工作进程按名称查找函数；请在模块顶层用 `def` 定义它",
    },
    "tool.isolated_typed_in": {
        "en": "{name} cannot run isolated: it was typed in, so there is no file to read it from",
        "zh": "{name} 不能隔离运行：它是直接输入的，没有可读取的文件",
    },
    "error.worker.not_json": {"en": "{name} is not JSON", "zh": "{name} 不是 JSON"},
    "error.worker.message_unreadable": {
        "en": "{name} (its message cannot be read: {broken})",
        "zh": "{name}（无法读取其消息：{broken}）",
    },
    "error.worker.not_started": {
        "en": "the worker process could not start (exit status {status})",
        "zh": "工作进程无法启动（退出状态 {status}）",
    },
    "error.worker.unreadable": {
        "en": "worker process {pid} sent something unreadable",
        "zh": "工作进程 {pid} 发来了无法读取的内容",
    },
    "error.worker.short_lived": {
        "en": "no worker process lives long enough to take the call up",
        "zh": "没有工作进程存活到能接受调用",
    },
    "error.worker.args_not_json": {
        "en": "the arguments of {target} are not JSON: {error}",
        "zh": "{target} 的参数不是 JSON：{error}",
    },
    "error.thread.raised": {
        "en": "the tool raised {name}{said}; a tool ends by returning or by raising an Exception",
        "zh": "工具抛出了 {name}{said}；工具应以返回或抛出 Exception 结束",
    },
    "error.worker.output_not_json": {
        "en": "the tool returned something that is not JSON: {error}",
        "zh": "工具返回的内容不是 JSON：{error}",
    },
    "tool.no_mapping": {
        "en": "expected a mapping with 'shell' or 'http', got {data!r}",
        "zh": "应为含 'shell' 或 'http' 的映射，实际为 {data!r}",
    },
    "tool.shell_or_http": {
        "en": "give either shell: [program, argument, …] or http: {{method, url}}, not {given}",
        "zh": "请给出 shell: [program, argument, …] 或 http: {{method, url}} 之一，而不是 {given}",
    },
    "tool.given_twice": {
        "en": "{key!r} is given twice, inside {kind} and beside it",
        "zh": "{key!r} 给出了两次，{kind} 内外各一次",
    },
    "tool.no_function": {
        "en": "a tool is made from a function, not from {fn!r}",
        "zh": "工具由函数构成，而不是 {fn!r}",
    },
    "tool.advice.list": {"en": "return a list", "zh": "请返回列表"},
    "tool.kind.async_generator": {"en": "an async generator", "zh": "异步生成器"},
    "tool.advice.await": {
        "en": "await it, or make the function `async def`",
        "zh": "请 await 它，或用 `async def` 定义函数",
    },
    "error.function.no_result": {
        "en": "the tool returned {what}, which is not a result; {advice}",
        "zh": "工具返回了{what}，那不是结果；{advice}",
    },
    "tool.lambda": {
        "en": "a lambda has no name; write rerail.tool(fn, name=…)",
        "zh": "lambda 没有名称；请写 rerail.tool(fn, name=…)",
    },
    "tool.no_tool": {
        "en": "{obj!r} is no tool: give a function, or something made by rerail.tool, shell or http",
        "zh": "{obj!r} 不是工具：请给出函数，或用 rerail.tool、shell、http 制作的工具",
    },
    "tool.label": {"en": "tool {name!r}", "zh": "工具 {name!r}"},
    "tool.unknown_method": {
        "en": "{label}: unknown method {method!r}; {known}",
        "zh": "{label}：未知的方法 {method!r}；{known}",
    },
    "tool.label.header": {"en": "{label}: header {key}", "zh": "{label}：请求头 {key}"},
    "tool.label.query": {"en": "{label}: query {key}", "zh": "{label}：查询参数 {key}"},
    "tool.http.host_by_data": {
        "en": "{label}: data chooses the host of {url!r}; write it out, or list hosts in allow_hosts",
        "zh": "{label}：{url!r} 的主机由数据决定；请直接写出，或在 allow_hosts 中列出主机",
    },
    "tool.http.no_address": {
        "en": "{label}: expected an address such as https://host/path?query, got {url!r}",
        "zh": "{label}：应为 https://host/path?query 这样的地址，实际为 {url!r}",
    },
    "tool.http.password": {
        "en": "{label}: a password in an address ends up in logs; use headers={{'Authorization': …}}",
        "zh": "{label}：地址中的密码会进入日志；请使用 headers={{'Authorization': …}}",
    },
    "tool.http.no_host": {"en": "{label}: {url!r} names no host", "zh": "{label}：{url!r} 没有主机"},
    "tool.http.no_header": {
        "en": "{label}: {key!r}: {value!r} is no header",
        "zh": "{label}：{key!r}：{value!r} 不是请求头",
    },
    "tool.http.allow_hosts": {
        "en": "{label}: allow_hosts is a list of hosts, not {hosts!r}",
        "zh": "{label}：allow_hosts 应为主机列表，而不是 {hosts!r}",
    },
    "error.http.bad_argument": {
        "en": "argument {name!r} cannot stand in an address: {error}",
        "zh": "参数 {name!r} 不能放在地址中：{error}",
    },
    "error.http.empty_argument": {
        "en": "argument {name!r} is empty and would change which address is meant",
        "zh": "参数 {name!r} 为空，会改变所指的地址",
    },
    "error.http.dots": {
        "en": "the path {path!r} has a segment that is only dots; the request was not made",
        "zh": "路径 {path!r} 中有一段只由点组成；没有发出请求",
    },
    "error.http.no_host_part": {
        "en": "argument {name!r} is {text!r}, which is no part of a host name",
        "zh": "参数 {name!r} 是 {text!r}，不能作为主机名的一部分",
    },
    "error.http.no_port": {"en": "{text!r} is no port", "zh": "{text!r} 不是端口"},
    "error.http.line_break": {
        "en": "argument {name!r} holds a line break, which cannot stand in a header",
        "zh": "参数 {name!r} 含有换行，不能放在请求头中",
    },
    "error.http.redirects": {"en": "{request}: more than {most} redirects", "zh": "{request}：重定向超过 {most} 次"},
    "error.http.no_connection": {"en": "{request}: no connection: {error}", "zh": "{request}：无法连接：{error}"},
    "error.http.cancelled": {"en": "{request}: cancelled before it was sent", "zh": "{request}：发送之前已取消"},
    "error.http.no_answer": {"en": "no answer in time", "zh": "没有及时响应"},
    "error.http.broke": {"en": "the connection broke", "zh": "连接中断"},
    "error.http.bad_redirect": {
        "en": "{request}: redirected to {location!r}: {error}",
        "zh": "{request}：重定向到 {location!r}：{error}",
    },
    "error.http.redirect_not_followed": {
        "en": "{request}: redirected to {location!r}, which is not followed",
        "zh": "{request}：重定向到 {location!r}，不予跟随",
    },
    "error.http.too_large": {
        "en": "{request}: the response has more than {limit} bytes",
        "zh": "{request}：响应超过 {limit} 字节",
    },
    "error.http.elsewhere": {"en": "somewhere else", "zh": "别处"},
    "error.http.sent_on": {
        "en": "{request}: sent on to {where} with status {status}; put that address into the tool",
        "zh": "{request}：以状态 {status} 转到 {where}；请把该地址写入工具",
    },
    "error.http.packed": {
        "en": "{request}: the response cannot be unpacked: {error}",
        "zh": "{request}：无法解压响应：{error}",
    },
    "tool.langchain.metadata": {
        "en": "tool {name!r}: metadata['rerail'] is a mapping such as {{'effect': 'read'}}, not {found!r}",
        "zh": "工具 {name!r}：metadata['rerail'] 应为 {{'effect': 'read'}} 这样的映射，而不是 {found!r}",
    },
    "tool.langchain.artifact": {
        "en": "the artifact is a {name}, which cannot be kept; it is left out",
        "zh": "产物是 {name}，无法保存，已略去",
    },
    "hint.tools.mend_function": {"en": "mend that function or list", "zh": "请修正该函数或列表"},
    "refuse.tools.none": {"en": "{home} holds no tools", "zh": "{home} 中没有工具"},
    "hint.tools.none": {
        "en": "decorate functions with @rerail.tool, or list them in TOOLS",
        "zh": "请用 @rerail.tool 装饰函数，或把它们列在 TOOLS 中",
    },
    "hint.tools.no_file": {"en": "name a .py file, or module:name", "zh": "请指定 .py 文件，或 module:name"},
    "refuse.tools.cannot_load": {"en": "{path} cannot be loaded: {error}", "zh": "无法加载 {path}：{error}"},
    "hint.tools.mend_file": {"en": "mend the file and try again", "zh": "请修正该文件后再试"},
    "refuse.tools.neither": {
        "en": "{name!r} is neither a .py file nor a module",
        "zh": "{name!r} 既不是 .py 文件也不是模块",
    },
    "hint.tools.neither": {"en": "write file.py, module or module:name", "zh": "请写 file.py、module 或 module:name"},
    "refuse.tools.no_module": {"en": "there is no module {name}", "zh": "没有模块 {name}"},
    "hint.tools.no_module": {
        "en": "install it, go to its folder, or name a .py file",
        "zh": "请安装它，切换到它的目录，或指定 .py 文件",
    },
    "refuse.tools.cannot_import": {"en": "{name} cannot be imported: {error}", "zh": "无法导入 {name}：{error}"},
    "hint.tools.mend_module": {"en": "mend the module and try again", "zh": "请修正该模块后再试"},
    "refuse.tools.at_file": {"en": "{said} ({name}, line {lineno})", "zh": "{said}（{name}，第 {lineno} 行）"},
    "refuse.tools.at_line": {"en": "{said} (line {lineno})", "zh": "{said}（第 {lineno} 行）"},
    "refuse.tools.no_list": {"en": "{where} is no list of tools", "zh": "{where} 不是工具列表"},
    "refuse.tools.no_such": {"en": "{home} has no {name!r}", "zh": "{home} 中没有 {name!r}"},
    "hint.tools.no_such": {"en": "name a tool, a function or a list of them", "zh": "请指定工具、函数或它们的列表"},
    "refuse.tools.two": {"en": "{home} has two tools named {name!r}", "zh": "{home} 中有两个工具都名为 {name!r}"},
    "hint.tools.two": {
        "en": "rename one of them: @rerail.tool(name=…)",
        "zh": "请给其中一个改名：@rerail.tool(name=…)",
    },
    "error.mcp.no_variable": {
        "en": "MCP server {name!r}: the environment variable {variable!r} is not set",
        "zh": "MCP 服务器 {name!r}：没有设置环境变量 {variable!r}",
    },
    "mcp.kind.texts": {"en": "a list of texts", "zh": "文本列表"},
    "mcp.kind.names_to_values": {
        "en": "a mapping of names to texts, numbers or booleans",
        "zh": "名称到文本、数或布尔值的映射",
    },
    "mcp.kind.address": {
        "en": "an address that begins with http:// or https://",
        "zh": "以 http:// 或 https:// 开头的地址",
    },
    "mcp.kind.names_to_texts": {"en": "a mapping of names to texts", "zh": "名称到文本的映射"},
    "mcp.not_both": {"en": "not both", "zh": "不能两者都给"},
    "mcp.one_needed": {"en": "one of them is needed", "zh": "需要其中之一"},
    "mcp.expected": {"en": "{key}: expected {expected}", "zh": "{key}：应为{expected}"},
    "error.mcp.last_words": {"en": "; its last words: {last_words}", "zh": "；它最后的输出：{last_words}"},
    "error.mcp.left_alone": {
        "en": "MCP server {name!r} died {count} times within {seconds:g} s without answering a call, and is left alone for a while{said}",
        "zh": "MCP 服务器 {name!r} 在 {seconds:g} 秒内死亡 {count} 次而没有回应任何调用，暂时不再使用{said}",
    },
    "error.mcp.bad_answer": {
        "en": "the answer of MCP server {name!r} cannot be used: {error}",
        "zh": "MCP 服务器 {name!r} 的回应无法使用：{error}",
    },
    "error.mcp.no_answer": {"en": "no answer within {seconds:g} s", "zh": "{seconds:g} 秒内没有回答"},
    "error.mcp.no_message": {"en": "no message", "zh": "没有消息"},
    "mcp.label": {"en": "MCP server {server!r}", "zh": "MCP 服务器 {server!r}"},
    "error.mcp.lost": {
        "en": "{label} was lost in the middle of the call: {message}{said}",
        "zh": "{label} 在调用进行中丢失：{message}{said}",
    },
    "error.mcp.unreachable": {"en": "{label} cannot be reached: {message}", "zh": "无法访问 {label}：{message}"},
    "error.mcp.no_session": {
        "en": "{label} does not know our session any more: {message}",
        "zh": "{label} 不再认识我们的会话：{message}",
    },
    "error.mcp.sign_in": {
        "en": "{label} wants somebody to sign in first: {message}",
        "zh": "{label} 要求先登录：{message}",
    },
    "error.mcp.status": {
        "en": "{label} answered with HTTP status {status}: {message}",
        "zh": "{label} 返回 HTTP 状态 {status}：{message}",
    },
    "error.mcp.no_folder": {"en": "{label}: there is no folder {cwd!r}", "zh": "{label}：没有目录 {cwd!r}"},
    "error.mcp.no_command": {
        "en": "command not found; install it, or name its path",
        "zh": "找不到命令；请安装它，或写出其路径",
    },
    "error.mcp.closed": {"en": "it was closed", "zh": "已关闭"},
    "tool.unknown_parse": {
        "en": "tool {name!r}: unknown parse {parse!r}; {known}",
        "zh": "工具 {name!r}：未知的 parse {parse!r}；{known}",
    },
    "error.shell.too_large": {
        "en": "the command wrote more than {limit} bytes and was stopped",
        "zh": "命令输出超过 {limit} 字节，已被停止",
    },
    "tool.shell.no_list": {
        "en": "{label}: a command is a list of texts, as ['grep', '--', '{{pattern}}'], not {argv!r}",
        "zh": "{label}：命令应为文本列表，例如 ['grep', '--', '{{pattern}}']，而不是 {argv!r}",
    },
    "tool.shell.nul": {"en": "{label}: a command cannot be given a NUL byte", "zh": "{label}：命令中不能有 NUL 字节"},
    "tool.shell.program": {
        "en": "{label}: the program {program!r} must be written out; data may not choose what is run",
        "zh": "{label}：程序 {program!r} 必须直接写出；不能由数据决定运行什么",
    },
    "tool.label.argument": {"en": "{label}: argument {at}", "zh": "{label}：第 {at} 个参数"},
    "tool.label.env": {"en": "{label}: env {key}", "zh": "{label}：环境变量 {key}"},
    "error.shell.nul": {
        "en": "argument {name!r} holds a NUL byte, which cannot be passed to a command",
        "zh": "参数 {name!r} 含有 NUL 字节，不能传给命令",
    },
    "error.shell.bad_argument": {
        "en": "argument {name!r} cannot be passed to a command: {error}",
        "zh": "参数 {name!r} 不能传给命令：{error}",
    },
    "error.shell.too_long": {
        "en": "the arguments are too long for a command: {error}",
        "zh": "参数过长，无法传给命令：{error}",
    },
    "error.shell.no_folder": {
        "en": "the working folder {cwd!r} cannot be entered: {strerror}",
        "zh": "无法进入工作目录 {cwd!r}：{strerror}",
    },
    "error.shell.no_command": {
        "en": "{program}: command not found; install it, or name its path",
        "zh": "{program}：找不到命令；请安装它，或写出其路径",
    },
    "error.shell.not_started": {"en": "{program} cannot be started: {error}", "zh": "无法启动 {program}：{error}"},
    "error.shell.not_json": {
        "en": "the command's output is not JSON ({error}): {shown!r}",
        "zh": "命令的输出不是 JSON（{error}）：{shown!r}",
    },
    "tool.faulty": {"en": "tool {name!r}: {message}", "zh": "工具 {name!r}：{message}"},
    "tool.signature.unreadable": {
        "en": "tool {name!r}: its signature cannot be read ({error}); wrap it in a function",
        "zh": "工具 {name!r}：无法读取其签名（{error}）；请用函数包装它",
    },
    "tool.signature.positional": {
        "en": "parameter {name!r} is positional-only; arguments come by name, so take out the `/`",
        "zh": "参数 {name!r} 只能按位置传递；参数按名称传递，请去掉 `/`",
    },
    "tool.signature.star": {
        "en": "*{name} cannot be filled by name; use a list parameter, or **{name}",
        "zh": "*{name} 不能按名称填充；请使用列表参数，或 **{name}",
    },
    "tool.signature.method": {
        "en": "it is a method and nobody would pass {first!r}; use rerail.tool(instance.{name})",
        "zh": "它是方法，没有人会传入 {first!r}；请使用 rerail.tool(instance.{name})",
    },
    "tool.signature.unknown_name": {
        "en": "tool {name!r}: an annotation names something unknown: {error}",
        "zh": "工具 {name!r}：注解中有未知的名称：{error}",
    },
    "tool.signature.annotations": {
        "en": "tool {name!r}: its annotations cannot be read: {error}",
        "zh": "工具 {name!r}：无法读取其注解：{error}",
    },
    "tool.signature.no_schema": {
        "en": "tool {name!r}: parameter {field!r} is of type {hint!r}, which has no JSON schema; use a JSON type, a dataclass or a pydantic model, or give schema=…",
        "zh": "工具 {name!r}：参数 {field!r} 的类型 {hint!r} 没有 JSON schema；请使用 JSON 类型、dataclass 或 pydantic 模型，或给出 schema=…",
    },
    "tool.signature.no_schema_at_all": {
        "en": "tool {name!r}: no JSON schema can be made from its signature: {error}",
        "zh": "工具 {name!r}：无法由其签名生成 JSON schema：{error}",
    },
    "tool.no_name": {
        "en": "a tool's name is a text that is not empty, not {name!r}",
        "zh": "工具名应为非空文本，而不是 {name!r}",
    },
    "tool.did_you_mean": {"en": "did you mean {guess!r}?", "zh": "您是不是要找 {guess!r}？"},
    "tool.there_are": {"en": "there are {names}", "zh": "现有 {names}"},
    "tool.unknown_effect": {"en": "unknown effect {effect!r}; {known}", "zh": "未知的 effect {effect!r}；{known}"},
    "tool.schema": {"en": "the schema cannot be used: {problems}", "zh": "schema 无法使用：{problems}"},
    "tool.choice": {"en": "{label} is {given!r}; use one of: {known}", "zh": "{label} 为 {given!r}；可用：{known}"},
    "tool.settle": {
        "en": 'settle is {settle!r}; use a number of seconds, or "never"',
        "zh": 'settle 为 {settle!r}；请用秒数，或 "never"',
    },
    "tool.idempotent_for": {
        "en": "idempotent_for is {seconds!r}; use a number of seconds above 0",
        "zh": "idempotent_for 为 {seconds!r}；请用大于 0 的秒数",
    },
    "tool.no_key": {
        "en": "idempotent_for: the tool does not hand its idempotency key on. Take a ctx parameter and send ctx.key, or put {{key}} into the command or request",
        "zh": "idempotent_for：该工具不会传递幂等键。请接收 ctx 参数并发送 ctx.key，或在命令或请求中写入 {{key}}",
    },
    "tool.not_fenced": {
        "en": "fenced: only a tool that can call ctx.ensure_owner() right before its effect is; take a ctx parameter, or leave it out",
        "zh": "fenced：只有能在生效前调用 ctx.ensure_owner() 的工具才可声明；请接收 ctx 参数，或去掉该项",
    },
    "tool.shell.not_done": {
        "en": "tool {name!r}: not_done is {given!r}; use a list of exit statuses from 1 to 255",
        "zh": "工具 {name!r}：not_done 为 {given!r}；请用 1 到 255 的退出状态列表",
    },
    "tool.http.key_header": {
        "en": "tool {name!r}: key_header is {given!r}; use the name of a header, or None",
        "zh": "工具 {name!r}：key_header 为 {given!r}；请用请求头名称，或 None",
    },
    "tool.shell.both": {
        "en": "tool {name!r}: exit status {status} is in ok and in not_done; leave it in one",
        "zh": "工具 {name!r}：退出状态 {status} 同时出现在 ok 与 not_done 中，请只留一处",
    },
    "tool.timeout": {
        "en": "timeout is a number of seconds above 0, not {timeout!r}",
        "zh": "timeout 应为大于 0 的秒数，而不是 {timeout!r}",
    },
    "tool.cost": {
        "en": "cost is a number from 0, the cost of one call, not {cost!r}",
        "zh": "cost 应为不小于 0 的数（一次调用的费用），而不是 {cost!r}",
    },
    "tool.alternatives": {
        "en": "alternatives is a list of tool names, not {tools!r}",
        "zh": "alternatives 应为工具名列表，而不是 {tools!r}",
    },
    "tool.limits": {
        "en": "limits are memory and file_size in bytes, network and processes true or false: {faults}",
        "zh": "limits 可包含 memory 和 file_size（字节数）、network 和 processes（true 或 false）：{faults}",
    },
    "tool.limits_missing": {
        "en": "this machine cannot keep a tool from {names}; only Linux on x86-64 and ARM64 can",
        "zh": "这台机器无法限制工具使用 {names}；只有 x86-64 和 ARM64 上的 Linux 可以",
    },
    "tool.secrets": {
        "en": "secrets is a list of environment variables, not {given!r}",
        "zh": "secrets 应为环境变量名列表，而不是 {given!r}",
    },
    "tool.strange_alternative": {
        "en": "alternatives is a list of tool names; {strange!r} is none",
        "zh": "alternatives 应为工具名列表；{strange!r} 不是",
    },
    "tool.mapping": {
        "en": "{label} is a mapping with {names}, not {given!r}",
        "zh": "{label} 应为含 {names} 的映射，而不是 {given!r}",
    },
    "tool.unknown_key": {"en": "{label}: unknown key {key!r}; {known}", "zh": "{label}：未知的键 {key!r}；{known}"},
    "tool.part_faulty": {"en": "tool {name!r}: {label}: {error}", "zh": "工具 {name!r}：{label}：{error}"},
    "tool.check_schema": {
        "en": "check: the schema cannot be used: {problems}",
        "zh": "check：schema 无法使用：{problems}",
    },
    "tool.part_no_function": {"en": "{label} is a function, not {fn!r}", "zh": "{label} 应为函数，而不是 {fn!r}"},
    "tool.yields": {
        "en": "expected an answer, got {name}; use return, not yield",
        "zh": "应为回答，实际为 {name}；请用 return，不要用 yield",
    },
    "tool.takes": {
        "en": "{label} takes any of {names} by name, and has a parameter {name!r}",
        "zh": "{label} 可按名称接受 {names}，而它有参数 {name!r}",
    },
    "tool.unknown_option": {"en": "unknown option {word!r}; {known}", "zh": "未知的选项 {word!r}；{known}"},
    "tool.no_verify": {"en": "tool {name!r} has no verify", "zh": "工具 {name!r} 没有 verify"},
    "tool.no_probe": {"en": "tool {name!r} has no probe", "zh": "工具 {name!r} 没有 probe"},
    "tool.template.bad": {
        "en": "{where}: {error} in {text!r}; write {{{{ and }}}} for literal braces",
        "zh": "{where}：{text!r} 中 {error}；字面的花括号请写 {{{{ 和 }}}}",
    },
    "tool.template.no_placeholder": {
        "en": "{where}: {text!r} holds {{{field}}}, which is no placeholder{hint}; a placeholder is {{name}}, literal braces are {{{{ and }}}}",
        "zh": "{where}：{text!r} 含有 {{{field}}}，它不是占位符{hint}；占位符写成 {{name}}，字面的花括号写成 {{{{ 和 }}}}",
    },
    "tool.no_property": {
        "en": "tool {name!r}: its schema has no property {one!r}; {known}",
        "zh": "工具 {name!r}：其 schema 没有属性 {one!r}；{known}",
    },
    "refuse.tools.no_file": {"en": "there is no file {path}", "zh": "没有文件 {path}"},
    "refuse.tools.no_file_near": {"en": "there is no file {path}; {near}", "zh": "没有文件 {path}；{near}"},
    "refuse.tools.no_such_near": {"en": "{home} has no {name!r}; {near}", "zh": "{home} 中没有 {name!r}；{near}"},
    "refuse.tools.in_home": {"en": "{home}: {error}", "zh": "{home}：{error}"},
    "error.mcp.no_program": {"en": "{label}: {command}: {reason}", "zh": "{label}：{command}：{reason}"},
    "error.mcp.failed": {"en": "{label}: {message}", "zh": "{label}：{message}"},
    "error.mcp.not_started": {
        "en": "{label} cannot be started: {reason}{said}",
        "zh": "{label} 无法启动：{reason}{said}",
    },
    "error.mcp.not_reached": {
        "en": "{label} cannot be reached at {place}: {reason}{said}",
        "zh": "{label} 无法访问 {place}：{reason}{said}",
    },
    "error.function.args": {"en": "the arguments do not fit: {faults}", "zh": "参数不合适：{faults}"},
    "tool.kind.generator": {"en": "a generator", "zh": "生成器"},
    "tool.kind.coroutine": {"en": "a coroutine", "zh": "协程"},
    "tool.kind.future": {"en": "a future", "zh": "future"},
    "error.shell.silent": {"en": "the command said nothing", "zh": "命令没有输出"},
    "error.shell.ended": {"en": "{said} (exit status {status})", "zh": "{said}（退出状态 {status}）"},
    "error.shell.killed": {"en": "{said} (killed by signal {status})", "zh": "{said}（被信号 {status} 终止）"},
}
