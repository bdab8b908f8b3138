"""What crash tests say: what they found, and what they ask before they begin."""

from __future__ import annotations

CRASHES: dict[str, dict[str, str]] = {
    "crash.different": {"en": "{what}: {was} → {now}", "zh": "{what}：{was} → {now}"},
    "crash.problem.hangs": {
        "en": "the process did not come to its end within {seconds} s",
        "zh": "进程在 {seconds} 秒内没有结束",
    },
    "crash.problem.broke": {
        "en": "the process ended by itself with status {status}: {said}",
        "zh": "进程自行结束，状态 {status}：{said}",
    },
    "refuse.crash.undisturbed": {
        "en": "without any crash the plan does not come to its end, so there is nothing to compare with: {said}",
        "zh": "即使没有崩溃，计划也无法执行到底，因此无从比较：{said}",
    },
    "refuse.crash.no_tools": {
        "en": "crash tests load the tools in processes of their own: say where they are",
        "zh": "崩溃测试在独立进程中加载工具：请说明它们在哪里",
    },
    "refuse.crash.no_terminal": {
        "en": "a crash test really calls the tools of the plan, again and again; without a terminal that needs --yes",
        "zh": "崩溃测试会反复真实调用计划中的工具；没有终端时需要 --yes",
    },
    "refuse.crash.not_empty": {
        "en": "{folder} is not empty, and was not left by a crash test: name another folder",
        "zh": "{folder} 不是空的，也不是崩溃测试留下的：请指定其他文件夹",
    },
    "refuse.crash.counts": {
        "en": "--points and --jobs are at least 1",
        "zh": "--points 和 --jobs 至少为 1",
    },
    "cli.crash.about": {
        "en": "The plan is run once undisturbed, and then once more for {points}. Its tools are really called each time: "
        "{tools}.",
        "zh": "计划先不受干扰地执行一次，然后为{points}各再执行一次。每次都会真实调用工具：{tools}。",
    },
    "cli.crash.all_points": {"en": "every crash point", "zh": "每个崩溃点"},
    "cli.crash.some_points": {"en": "{n} crash points", "zh": "{n} 个崩溃点"},
    "cli.crash.once": {
        "en": "{tools}: declared as once. What they do outside of the run happens anew in each of these runs.",
        "zh": "{tools}：声明为 once。它们在任务之外的效果会在每次执行中重新发生。",
    },
    "cli.crash.ask": {"en": "Begin? [y/N]", "zh": "开始？[y/N]"},
    "cli.crash.progress": {"en": "{done} of {total} crash points", "zh": "{total} 个崩溃点中的 {done} 个"},
    "cli.crash.kept": {
        "en": "every guarantee was kept at {tried} of {points:crash point|crash points} ({seconds})",
        "zh": "在 {points} 个崩溃点中的 {tried} 个上，所有保证都成立（{seconds}）",
    },
    "cli.crash.broken": {
        "en": "a guarantee was broken at {broken} of {tried:crash point|crash points} tried ({seconds})",
        "zh": "在尝试的 {tried} 个崩溃点中，有 {broken} 个违反了保证（{seconds}）",
    },
    "cli.crash.untested": {
        "en": "nothing was tested: of {not_reached:crash point|crash points} none was reached ({seconds})",
        "zh": "没有测试任何内容：{not_reached} 个崩溃点一个也没有到达（{seconds}）",
    },
    "cli.crash.undisturbed": {
        "en": "Without any crash the run itself ends {status}: that, too, is what each of these runs was held against.",
        "zh": "即使没有崩溃，任务本身的结果也是“{status}”：每次执行都与这一结果比较。",
    },
    "cli.crash.hint_untested": {
        "en": "each run went otherwise than the undisturbed one, and was over before its crash point. Tools that remember"
        " earlier runs do that: let them begin anew in each run, or try other points (--points, --seed)",
        "zh": "每次执行都与不受干扰的那次不同，在到达崩溃点之前就结束了。记得之前执行的工具会这样："
        "请让它们在每次执行中从头开始，或尝试其他崩溃点（--points、--seed）",
    },
    "cli.crash.row.tried": {"en": "crash points tried", "zh": "尝试的崩溃点"},
    "cli.crash.row.not_reached": {
        "en": "points that were not reached, and so not tried",
        "zh": "未到达、因而未尝试的崩溃点",
    },
    "cli.crash.row.lost": {"en": "acknowledged events lost", "zh": "丢失的已确认事件"},
    "cli.crash.row.repeated": {"en": "effects repeated that must not be", "zh": "不应重复却重复的效果"},
    "cli.crash.row.missing": {"en": "steps missing from the verdict", "zh": "结论中缺失的步骤"},
    "cli.crash.row.doubts": {"en": "doubts reported to a person", "zh": "报告给人的疑问"},
    "cli.crash.row.open": {"en": "of these, left open: nobody can know", "zh": "其中无人能知、保持未决的"},
    "cli.crash.row.different": {"en": "points with another outcome", "zh": "结果不同的崩溃点"},
    "cli.crash.row.unfinished": {"en": "points that did not come to an end", "zh": "没有结束的崩溃点"},
    "cli.crash.of": {"en": "{tried} of {points}", "zh": "{points} 中的 {tried}"},
    "cli.crash.point": {"en": "point {point} ({what})", "zh": "崩溃点 {point}（{what}）"},
    "cli.crash.not_reached": {"en": "not reached", "zh": "未到达"},
    "cli.crash.fault.lost": {"en": "acknowledged, and gone: {names}", "zh": "已确认却丢失：{names}"},
    "cli.crash.fault.repeated": {"en": "called again without a reason: {names}", "zh": "无故再次调用：{names}"},
    "cli.crash.fault.missing": {"en": "not in the verdict: {names}", "zh": "不在结论中：{names}"},
    "cli.crash.fault.different": {"en": "ended otherwise: {names}", "zh": "结果不同：{names}"},
    "cli.crash.more": {"en": "and {n} more; --json has them all", "zh": "还有 {n} 个；--json 列出全部"},
    "cli.crash.tools": {"en": "Tools, when they were called again", "zh": "再次调用时的工具"},
    "cli.crash.head.effect": {"en": "declared", "zh": "声明"},
    "cli.crash.head.again": {"en": "called again", "zh": "再次调用"},
    "cli.crash.head.seen": {"en": "what was seen", "zh": "所见"},
    "cli.crash.tool.once": {
        "en": "not for a crash to repeat: see the doubts",
        "zh": "崩溃后不会重复调用：见疑问",
    },
    "cli.crash.tool.unknown": {"en": "never called again: nothing is known", "zh": "从未再次调用：无从得知"},
    "cli.crash.tool.varies": {
        "en": "never called again; its output differs from run to run",
        "zh": "从未再次调用；每次执行的输出都不同",
    },
    "cli.crash.tool.same": {"en": "the same each time", "zh": "每次结果相同"},
    "cli.crash.tool.unsafe": {
        "en": "not safe to repeat: another output {other:time|times}, failed {failed:time|times}",
        "zh": "不能安全重复：{other} 次输出不同，{failed} 次失败",
    },
    "cli.crash.cut.head": {
        "en": "Answers cut off after the effect ({n:call|calls}, an exception and a broken connection each)",
        "zh": "效果发生后答复被切断（{n} 次调用，每次各一个异常和一次连接中断）",
    },
    "cli.crash.cut.safe": {"en": "safe", "zh": "安全"},
    "cli.crash.cut.doubled": {"en": "DOUBLED: called again after its effect", "zh": "重复：效果发生后又被调用"},
    "cli.crash.cut.wrong": {
        "en": "WRONG: the run does not count the effect, and names no doubt",
        "zh": "误报：执行没有计入该效果，也没有提出疑问",
    },
    "cli.crash.cut.doubt": {"en": "in doubt: a person is asked", "zh": "存疑：需要人来回答"},
    "cli.crash.cut.unfinished": {"en": "did not come to an end: {n:run|runs}", "zh": "没有结束的执行：{n}"},
    "cli.crash.cut.broken": {
        "en": "an answer that was cut off did harm: see below ({seconds})",
        "zh": "被切断的答复造成了损害：见下文（{seconds}）",
    },
    "cli.crash.cut.hint": {
        "en": "give these tools a verify, or idempotent_for with ctx.key; `errors` must not call an effect not done: "
        "{tools}",
        "zh": "请为这些工具提供 verify，或使用 ctx.key 和 idempotent_for；`errors` 不得把已发生的效果称为未发生：{tools}",
    },
    "cli.crash.hint": {
        "en": "declare these tools as once, give them a verify, or let them use ctx.key: {tools}",
        "zh": "请把这些工具声明为 once、提供 verify，或让它们使用 ctx.key：{tools}",
    },
}
