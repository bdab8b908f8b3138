"""What `replay` says: a recorded run under other settings."""

from __future__ import annotations

REPLAYS: dict[str, dict[str, str]] = {
    "refuse.settings.not_replayed": {
        "en": "{name} is no setting that a run records; those that can be replayed:{known}",
        "zh": "{name} 不是任务会记录的设置；可以重放的设置：{known}",
    },
    "refuse.settings.not_replayed_near": {
        "en": "{name} is no setting that a run records; did you mean {near}? Those that can be replayed:{known}",
        "zh": "{name} 不是任务会记录的设置；您是不是要找 {near}？可以重放的设置：{known}",
    },
    "refuse.settings.nothing_to_replay": {
        "en": "no other setting is named; those that can be replayed:{known}",
        "zh": "没有给出其他设置；可以重放的设置：{known}",
    },
    "hint.settings.replay": {
        "en": "name one or more, such as reflection.max_step_retries=1",
        "zh": "给出一项或多项，例如 reflection.max_step_retries=1",
    },
    "cli.replay.title": {"en": "Run {run}, decided again:", "zh": "重新推演任务 {run}："},
    "cli.replay.setting": {"en": "  {name} = {new} (recorded: {old})", "zh": "  {name} = {new}（记录：{old}）"},
    "cli.replay.same": {
        "en": "It would have been the same, event by event.",
        "zh": "每个事件都会相同。",
    },
    "cli.replay.branch": {
        "en": "The same up to event {seq}; there, instead:",
        "zh": "在事件 {seq} 之前完全相同；从此处开始改为：",
    },
    "cli.replay.does": {"en": "{does} {what}", "zh": "{does} {what}"},
    "cli.replay.unknown": {
        "en": "How it would have ended is unknown: the history does not hold",
        "zh": "结果未知：历史中没有",
    },
    "cli.replay.unknown.call": {
        "en": "  what {tool} would have answered to call {call} of step {step} in round {round}",
        "zh": "  {tool} 在第 {round} 轮对步骤 {step} 第 {call} 次调用的回答",
    },
    "cli.replay.unknown.look": {
        "en": "  whether the effect of step {step} would have been there",
        "zh": "  步骤 {step} 的效果是否存在",
    },
    "cli.replay.unknown.person": {
        "en": "  whether somebody would have stepped in as they did",
        "zh": "  是否仍会有人像当时那样介入",
    },
    "cli.replay.unknown.tool": {
        "en": "  what would have been decided about {tool}: this tool is not here (name it with --tools)",
        "zh": "  对 {tool} 会作出的决定：此处没有该工具（请用 --tools 指定）",
    },
    "cli.replay.unknown.mind": {
        "en": "  what the model would have said to this question: {what} {step}",
        "zh": "  模型对此问题的回答：{what} {step}",
    },
    "cli.replay.unfinished": {
        "en": "How it would have ended is unknown: the recorded run has not ended either.",
        "zh": "结果未知：记录的任务也尚未结束。",
    },
    "cli.replay.not_replayed": {
        "en": "Not replayed: {n:thing|things} that people did after it had ended.",
        "zh": "未重放：结束之后人工进行的 {n} 次操作。",
    },
    "cli.replay.drift": {
        "en": "Event {seq} is not what today's tools and version would decide: from there on take this with care.",
        "zh": "事件 {seq} 与当前的工具和版本会作出的决定不同：此后的结果仅供参考。",
    },
    "cli.replay.no_tools": {
        "en": "Without the run's tools, which cannot be loaded here: {reason}",
        "zh": "此处无法加载任务的工具，因此不使用它们：{reason}",
    },
    "cli.replay.outcome": {"en": "outcome", "zh": "结果"},
    "cli.replay.calls": {"en": "calls", "zh": "调用"},
    "cli.replay.waited": {"en": "waited between tries", "zh": "重试等待"},
    "cli.replay.seconds": {"en": "time running", "zh": "运行时间"},
    "cli.replay.tokens": {"en": "tokens", "zh": "令牌"},
    "cli.replay.cost": {"en": "cost", "zh": "费用"},
    "cli.replay.at_least": {"en": "at least {value}", "zh": "至少 {value}"},
    "cli.replay.step": {
        "en": "{status}, {calls:call|calls}, waited {waited}",
        "zh": "{status}，调用 {calls} 次，等待 {waited}",
    },
    "cli.replay.unchanged": {"en": "No step is different.", "zh": "没有步骤不同。"},
    "cli.head.recorded": {"en": "recorded", "zh": "记录"},
    "cli.head.replayed": {"en": "replayed", "zh": "重放"},
    "status.unknown": {"en": "unknown", "zh": "未知"},
    "cli.command.replay": {
        "en": "Decide a recorded run again under other settings.",
        "zh": "用其他设置重新推演已记录的任务。",
    },
    "cli.about.replay": {
        "en": "Decide a recorded run again under other settings, and tell what would have been different.\n\n"
        "Nothing is called: --set names the settings, and answers come from the history. Where the other settings lead"
        " to a call whose answer it does not hold, what follows is unknown.",
        "zh": "用其他设置重新推演已记录的任务，并说明会有什么不同。\n\n"
        "不会调用任何工具：--set 给出设置，回答取自历史。如果其他设置导致历史中没有回答的调用，其后的结果未知。",
    },
}
