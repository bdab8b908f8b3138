"""Why a model gave no answer, and what to do about it: what a call of a model is recorded with."""

from __future__ import annotations

MODELS: dict[str, dict[str, str]] = {
    "model.timeout": {
        "en": "{name}: no answer from {place} within {seconds:g} s; see model.timeout",
        "zh": "{name}：{place} 在 {seconds:g} 秒内没有回答；见 model.timeout",
    },
    "model.key_refused": {"en": "the key was refused{status}: {advice}", "zh": "密钥被拒绝{status}：{advice}"},
    "model.quota": {
        "en": "the account's quota or credit is used up: top it up, or set model.fallback",
        "zh": "账户的配额或余额已用完：请充值，或设置 model.fallback",
    },
    "model.too_long": {
        "en": "the question is too long for the model: lower model.max_context_chars",
        "zh": "问题对该模型来说过长：请降低 model.max_context_chars",
    },
    "model.asked_to_wait": {"en": ", asked to wait {seconds:g} s", "zh": "，被要求等待 {seconds:g} 秒"},
    "model.too_many": {"en": "too many requests{wait}", "zh": "请求过多{wait}"},
    "model.late": {"en": "no answer from {place} in time", "zh": "{place} 没有及时回答"},
    "model.server_failed": {"en": "the server failed{status}", "zh": "服务器出错{status}"},
    "model.rejected": {"en": "the request was rejected{status}", "zh": "请求被拒绝{status}"},
    "model.no_model_there": {
        "en": "{place} did not answer as a model does: is this the right address{ending}?",
        "zh": "{place} 的回应不像模型：地址正确吗{ending}？",
    },
    "model.not_like_this": {
        "en": "the model cannot be asked like this; see model.name and model.output",
        "zh": "不能这样询问该模型；见 model.name 和 model.output",
    },
    "model.with_status": {"en": " with status {status}", "zh": "（状态 {status}）"},
    "model.check": {"en": "check {variable}", "zh": "请检查 {variable}"},
    "model.name_variable": {
        "en": "name the environment variable that holds it in model.key_env",
        "zh": "请在 model.key_env 中写出保存密钥的环境变量",
    },
    "model.unknown": {
        "en": "there is no model {model!r} at {place}: check model.name",
        "zh": "{place} 没有模型 {model!r}：请检查 model.name",
    },
    "model.and_base_url": {"en": "{text}, and model.base_url{ending}", "zh": "{text}，以及 model.base_url{ending}"},
    "model.ending": {"en": " (most end in /v1)", "zh": "（多数以 /v1 结尾）"},
    "model.did_you_mean": {"en": "; did you mean {name!r}?", "zh": "；您是不是要找 {name!r}？"},
    "model.server_running": {"en": "is the server running there?", "zh": "服务器在那里运行吗？"},
    "model.network_up": {"en": "is the network up?", "zh": "网络通吗？"},
    "model.no_connection": {"en": "no connection to {place}: {hint}", "zh": "无法连接 {place}：{hint}"},
    "model.broke": {
        "en": "the connection to {place} broke before the answer was whole",
        "zh": "与 {place} 的连接在回答完整之前中断",
    },
    "model.no_answer_in": {
        "en": "the model gave no answer within {seconds:g} s",
        "zh": "模型在 {seconds:g} 秒内没有回答",
    },
    "model.budget": {"en": "the budget of the run is used up", "zh": "任务预算已用完"},
    "model.no_answer": {"en": "the model gave no answer: {problem}", "zh": "模型没有回答：{problem}"},
    "model.unusable": {"en": "the model's answer cannot be used: {problem}", "zh": "模型的回答无法使用：{problem}"},
    "model.nothing": {
        "en": "no answer came back; what it cost is not known",
        "zh": "没有收到回答；费用未知",
    },
    "model.set_name": {"en": "set model.name, or model.{role}.name", "zh": "请设置 model.name 或 model.{role}.name"},
    "model.no_role": {"en": "there is no model for the role {role!r}: {hint}", "zh": "角色 {role!r} 没有模型：{hint}"},
    "model.no_key": {
        "en": "there is no key: set the environment variable {variable}, which model.key_env names",
        "zh": "没有密钥：请设置 model.key_env 所指的环境变量 {variable}",
    },
    "model.provider_near": {"en": "did you mean {near!r}?", "zh": "您是不是要找 {near!r}？"},
    "model.providers": {"en": "there are: {names}", "zh": "现有：{names}"},
    "model.unknown_provider": {"en": "unknown provider {name!r}; {hint}", "zh": "未知的提供方 {name!r}；{hint}"},
    "model.provider_setting": {
        "en": "the provider {name!r} cannot be given {setting}; leave it out",
        "zh": "提供方 {name!r} 不接受 {setting}；请去掉它",
    },
    "model.refused": {"en": "{name}: the model refused to answer{said}", "zh": "{name}：模型拒绝回答{said}"},
}
