"""What the HTTP server and its command say."""

from __future__ import annotations

SERVER: dict[str, dict[str, str]] = {
    "cli.serve.serving": {
        "en": "Serving on {url} - Ctrl-C ends it; runs that it drives can be resumed",
        "zh": "服务地址：{url}（按 Ctrl-C 结束；由它驱动的运行之后可以恢复）",
    },
    "cli.serve.no_page": {
        "en": "The page is not built; the API works all the same (`make web` builds it)",
        "zh": "网页尚未构建，API 照常可用（用 `make web` 构建）",
    },
    "cli.serve.withheld": {
        "en": "Not offered to plans from outside: {names} (--allow shell, --allow http)",
        "zh": "以下工具不提供给外来计划：{names}（可用 --allow shell、--allow http 放开）",
    },
    "hint.server.exposed": {
        "en": "set RERAIL_TOKEN to a secret that callers must know, or serve on 127.0.0.1",
        "zh": "请把 RERAIL_TOKEN 设为调用者必须知道的密钥，或只在 127.0.0.1 上服务",
    },
    "refuse.server.no_extra": {
        "en": "the HTTP server needs the extra `server`",
        "zh": "HTTP 服务需要安装附加组件 `server`",
    },
    "hint.server.no_extra": {"en": "pip install 'rerail[server]'", "zh": "pip install 'rerail[server]'"},
    "refuse.server.unauthorized": {"en": "the token is missing or wrong", "zh": "缺少令牌或令牌不正确"},
    "refuse.server.unnamed": {
        "en": "nobody said in time who this connection is for",
        "zh": "连接没有及时表明身份",
    },
    "hint.server.unauthorized": {
        "en": "send it as `Authorization: Bearer TOKEN`; the page takes it from its address, as #token=TOKEN",
        "zh": "请用 `Authorization: Bearer 令牌` 发送；网页则从地址中的 #token=令牌 读取",
    },
    "refuse.server.host": {
        "en": "this server is not known as {host!r}",
        "zh": "本服务器不叫 {host!r}",
    },
    "hint.server.host": {
        "en": "use its address, or name it in server.allow_hosts",
        "zh": "请使用它的地址，或把这个名字写进 server.allow_hosts",
    },
    "refuse.server.origin": {
        "en": "pages of {origin!r} may not use this server",
        "zh": "来自 {origin!r} 的网页不能使用本服务器",
    },
    "hint.server.origin": {
        "en": "name that address in server.allow_origins if it should be allowed to",
        "zh": "如需放行，请把该地址写进 server.allow_origins",
    },
    "refuse.server.read_only": {
        "en": "this server only shows runs; it was started with --read-only",
        "zh": "本服务器只供查看（以 --read-only 启动）",
    },
    "refuse.server.too_large": {
        "en": "the body is larger than {limit} bytes",
        "zh": "请求正文超过 {limit} 字节",
    },
    "refuse.server.busy": {
        "en": "{limit} requests are under way already, and there may be no more",
        "zh": "正在处理的请求已有 {limit} 个，达到上限",
    },
    "hint.server.busy": {"en": "try again in a moment", "zh": "请稍后再试"},
    "refuse.server.too_many": {
        "en": "{limit} streams and sockets are open already",
        "zh": "已打开 {limit} 个流和套接字连接，达到上限",
    },
    "hint.server.too_many": {
        "en": "close some, come back later, or raise server.max_readers",
        "zh": "请关闭一些连接、稍后再来，或调高 server.max_readers",
    },
    "refuse.server.not_found": {"en": "there is nothing at {path!r}", "zh": "{path!r} 处没有内容"},
    "hint.server.not_found": {"en": "GET /openapi.json lists what there is", "zh": "GET /openapi.json 列出所有地址"},
    "refuse.server.method": {"en": "{path!r} does not take {method}", "zh": "{path!r} 不接受 {method}"},
    "refuse.server.odd_request": {
        "en": "the request is not as it should be: {problems}",
        "zh": "请求不符合要求：{problems}",
    },
    "refuse.server.no_json": {
        "en": "the body has to be JSON, and is said to be {kind!r}",
        "zh": "请求正文必须是 JSON，但声明的类型是 {kind!r}",
    },
    "hint.server.no_json": {
        "en": "send the header content-type: application/json",
        "zh": "请发送请求头 content-type: application/json",
    },
    "refuse.server.internal": {"en": "the server made a mistake", "zh": "服务器内部出错"},
    "refuse.server.store": {"en": "the server cannot use its store", "zh": "服务器无法使用它的存储"},
    "hint.server.internal": {"en": "its log tells more", "zh": "详情见服务器日志"},
    "refuse.server.plan_or_objective": {
        "en": "a run needs a plan or an objective, and one of them only",
        "zh": "启动运行需要计划或目标，两者只能给一个",
    },
    "hint.server.withheld": {
        "en": "start the server with {option}",
        "zh": "请用 {option} 启动服务器",
    },
    "refuse.server.starts_over": {
        "en": "starting over does everything again, and needs a word for it",
        "zh": "从头开始会重做所有步骤，需要明确确认",
    },
    "hint.server.starts_over": {
        "en": "look at the dry run first, then send confirmed: true",
        "zh": "请先查看预演结果，再发送 confirmed: true",
    },
    "refuse.server.subscribe_how": {
        "en": "subscribe takes a run, and may take after and protocol (events, tools or both)",
        "zh": "subscribe 需要 run，另可给出 after 和 protocol（events、tools 或 both）",
    },
    "refuse.server.edit_encoding": {
        "en": 'what is to stand in {name!r} has to be text, or base64 in {{"base64": …}}',
        "zh": '{name!r} 的新内容必须是文本，或写成 {{"base64": …}}',
    },
    "refuse.server.cursor": {"en": "that is no cursor of this list", "zh": "这不是本列表的游标"},
    "server.page.missing": {
        "en": "The page is not built. `make web` builds it; the API is at /api/v1, described in /openapi.json.",
        "zh": "网页尚未构建，可用 `make web` 构建；API 位于 /api/v1，说明见 /openapi.json。",
    },
}
