"""What people read where Rerail and LangGraph meet."""

GRAPHS: dict[str, dict[str, str]] = {
    "refuse.graph.no_extra": {
        "en": "graphs need the extra `langgraph`",
        "zh": "图功能需要额外依赖 `langgraph`",
    },
    "hint.graph.no_extra": {"en": "pip install 'rerail[langgraph]'", "zh": "pip install 'rerail[langgraph]'"},
    "refuse.graph.nothing_to_run": {
        "en": "the graph was given no plan, no objective and no run to go on with",
        "zh": "没有给图提供计划、目标，也没有可继续的任务",
    },
    "hint.graph.nothing_to_run": {
        "en": "put `plan`, `objective` or `run_id` into its input",
        "zh": "请在输入中给出 `plan`、`objective` 或 `run_id`",
    },
    "reason.graph.answer": {
        "en": "this is no answer for step {step!r}: {answer!r}",
        "zh": "这不是对步骤 {step!r} 的有效回答：{answer!r}",
    },
    "reason.graph.unknown": {
        "en": "no step {step!r} waits for an answer",
        "zh": "没有名为 {step!r} 的步骤在等待回答",
    },
    "reason.graph.how": {
        "en": "true or false for all gates, or an answer for each step: true, false, \"skip\", {{\"succeeded\": value}}, {{\"failed\": true}} or {{\"rerun\": true}}",
        "zh": "对所有确认点回答 true 或 false，或逐个步骤回答：true、false、\"skip\"、{{\"succeeded\": 值}}、{{\"failed\": true}} 或 {{\"rerun\": true}}",
    },
    "error.graph.interrupted": {
        "en": "the graph asks a person, and as a tool it has nobody to ask: {question}",
        "zh": "图需要人来回答，但作为工具它无人可问：{question}",
    },
}  # fmt: skip
