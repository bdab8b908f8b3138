"""Why a wish about a run or a store was refused, and what to do instead."""

from __future__ import annotations

RUNS: dict[str, dict[str, str]] = {
    # Runs and what people do to them.
    "refuse.run.run_in_doubt": {"en": "nobody knows whether the effect of step {step!r} happened"},
    "refuse.run.nothing_to_retry": {"en": "run {run} completed with nothing degraded or skipped"},
    "refuse.run.step_unknown": {"en": "run {run} has no step {step!r}"},
    "refuse.run.run_at_rest": {"en": "run {run} is {status}"},
    "refuse.run.run_paused": {"en": "run {run} is paused already"},
    "refuse.run.run_live": {"en": "run {run} is being driven"},
    "refuse.run.step_ended": {"en": "step {step!r} is {status} already"},
    "refuse.run.run_waits_confirm": {"en": "run {run} waits for a confirmation"},
    "refuse.run.stage_unknown": {"en": "run {run} has no stage {stage!r}; stages: {stages}"},
    "refuse.run.retry_limit": {"en": "run {run} was retried {retries:time|times}; the limit is {max_retries}"},
    "refuse.run.not_retryable": {"en": "this error cannot be mended by trying again: {reason}"},
    "refuse.run.run_completed": {"en": "run {run} completed"},
    "refuse.run.step_succeeded": {"en": "step {step!r} succeeded already"},
    "refuse.run.no_steps": {"en": "there are no steps to add"},
    "refuse.run.run_id_invalid": {"en": "{run!r} cannot be the id of a run"},
    "refuse.run.no_model": {"en": "there is no model to make a plan"},
    "refuse.run.lease_lost": {"en": "another process took run {run} over"},
    "refuse.run.store_newer": {"en": "run {run} was written by a newer version of Rerail: {error}"},
    "refuse.run.run_ambiguous": {"en": "{run!r} could be any of: {names}"},
    "refuse.run.artifact_gone": {"en": "artifact {name!r} is gone: {reason}"},
    "refuse.run.unknown_tool": {"en": "no tool named {name!r} is loaded; load it with --tools"},
    "refuse.run.value_invalid": {"en": "the value is not JSON: {error}"},
    "refuse.run.gate_not_reached": {"en": "step {step!r} does not wait for a confirmation yet"},
    "refuse.run.step_is": {"en": "step {step!r} is {status}"},
    "refuse.run.not_in_doubt": {"en": "step {step!r} is not in doubt, it is {status}"},
    "refuse.run.no_gate": {"en": "step {step!r} does not wait for a confirmation"},
    "refuse.run.run_is_paused": {"en": "run {run} is paused"},
    "refuse.run.stopping": {"en": "run {run} is stopping ({stopped})"},
    "refuse.run.which_gate": {"en": "name the step to confirm; waiting: {waiting}"},
    "refuse.run.nothing_failed": {"en": "no step of run {run} failed or was left out"},
    "refuse.run.step_running": {"en": "step {step!r} is running"},
    "refuse.run.not_recorded": {"en": "not recorded"},
    "refuse.run.no_answer": {"en": "the owner of run {run} did not answer within {seconds:g} s"},
    "refuse.run.event_damaged": {"en": "event {seq} of run {run} is damaged: {error}"},
    "refuse.run.action_not_recorded": {"en": "the action could not be recorded"},
    "refuse.run.taken_over": {"en": "another process took run {run} over; this one stopped"},
    "refuse.run.broken": {"en": "run {run} stopped: {broken}"},
    "refuse.run.stopped_by_store": {"en": "run {run} stopped: {error}"},
    "refuse.run.stopped_out_of_reach": {"en": "run {run} stopped: the store is out of reach: {error}"},
    "refuse.run.changes_hands": {"en": "run {run} changes hands too fast; try again"},
    "refuse.run.tools_missing": {"en": "run {run} cannot go on without its tools:"},
    "refuse.run.change_refused": {"en": "the change was refused; the plan stays as it was"},
    "refuse.run.no_servers": {"en": "this engine opens no MCP servers"},
    "refuse.run.repair_unchanged": {"en": "nothing of the step changes; give args, tool or needs"},
    "refuse.run.no_object": {"en": '{text!r} is no JSON object; write it as {{"name": value}}'},
    "refuse.run.plan_faulty": {"en": "the plan cannot be run; nothing was started:"},
    "refuse.run.resolve_how": {"en": "say exactly one of succeeded=VALUE, failed=True, rerun=True"},
    "refuse.run.driven_by": {"en": "run {run} is being driven by process {owner}"},
    "refuse.run.no_such_run": {"en": "there is no run {run!r}"},
    "refuse.run.run_without_plan": {"en": "run {run} died before its plan was recorded"},
    "refuse.run.taken_first": {"en": "process {owner} took run {run} over first"},
    "refuse.run.action_unreadable": {"en": "the action cannot be read: {error}"},
    "refuse.run.id_taken": {"en": "there is a run {run!r} already"},
    "refuse.run.artifact_unknown": {"en": "run {run} has no artifact {name!r}"},
    "refuse.run.stopped_before": {"en": "the run stopped before the action could be recorded"},
    "refuse.run.not_driven": {"en": "run {run} is not being driven any more"},
    "refuse.run.action_unknown": {"en": "unknown action {action!r}"},
    "hint.run.run_in_doubt": {"en": "use: rerail resolve {run} {step} --succeeded VALUE | --failed | --rerun"},
    "hint.run.nothing_to_retry": {"en": "name the steps to run again"},
    "hint.run.did_you_mean": {"en": "did you mean {near!r}?", "zh": "您是不是要找 {near!r}？"},
    "hint.run.see_run": {"en": "see: rerail show {run}", "zh": "查看：rerail show {run}"},
    "hint.run.gate_not_reached": {
        "en": "refuse it once it does, or do without it: rerail skip {run} {step}",
        "zh": "等它提出确认时再拒绝，或跳过：rerail skip {run} {step}",
    },
    "hint.run.run_at_rest": {"en": "use: rerail retry {run}"},
    "hint.run.run_paused": {"en": "use: rerail resume {run}"},
    "hint.run.run_live": {"en": "use: rerail watch {run}"},
    "hint.run.run_waits_confirm": {"en": "use: rerail confirm {run}"},
    "hint.run.retry_limit": {"en": "use: rerail retry {run} --clean to start over, or --force to pass the limit"},
    "hint.run.not_retryable": {"en": "fix its cause, then retry with --force"},
    "hint.run.run_completed": {
        "en": "use: rerail retry {run} --force --step STEP; without --step for what was degraded or skipped"
    },
    "hint.run.step_succeeded": {"en": "use --force to run it again"},
    "hint.run.run_id_invalid": {
        "en": "use up to {limit} printable characters, no slash and no colon, not beginning with - ~ or a dot"
    },
    "hint.run.no_model": {
        "en": "name one with model.name (docs/howto/models.md; pip install 'rerail[llm]'), or give a plan"
    },
    "hint.run.store_newer": {"en": "upgrade rerail"},
    "hint.run.run_ambiguous": {"en": "type more of the id"},
    "hint.run.artifact_gone": {"en": "use: rerail retry {run}"},
    "hint.run.not_in_doubt": {"en": "use: rerail retry {run}"},
    "hint.run.stopping": {"en": "wait for its end, then retry"},
    "hint.run.driven_by": {"en": "name the steps to retry, or wait for it"},
    "hint.run.no_such_run": {"en": "see: rerail ls"},
    "hint.run.run_without_plan": {"en": "start it again"},
    "hint.run.id_taken": {"en": "see: rerail show {run}"},
    "hint.run.artifact_unknown": {"en": "see: rerail artifacts {run}"},
    # Stores.
    "refuse.store.store_newer": {
        "en": "{path} was written by a newer Rerail (its format is {version}, this one knows {count}). Upgrade: pip install --upgrade rerail"
    },
    "refuse.store.out_of_reach": {"en": "the store is out of reach: {error}"},
    "refuse.store.cannot_create": {
        "en": "{path} cannot be created ({strerror}). Check the folder, or name another file with --store."
    },
    "refuse.store.is_folder": {"en": "{path} is a folder. Name a file in it, as in --store sqlite:///{path}/runs.db"},
    "refuse.store.no_folder": {
        "en": "{path} cannot be created: {folder} is not a folder. Name another file with --store."
    },
    "refuse.store.folder_read_only": {
        "en": "The folder of {path} cannot be written. Make it writable, or name another file with --store."
    },
    "refuse.store.no_access": {
        "en": "{path} cannot be read or written. Change its permissions, or name another file with --store."
    },
    "refuse.store.read_only": {
        "en": "{path} cannot be written. Change its permissions, or name another file with --store."
    },
    "refuse.store.bad_file_system": {
        "en": "The file system of {path} cannot hold a store. Name a file on a local disk with --store."
    },
    "refuse.store.not_ours": {"en": "{path} is a database of another program. Name another file with --store."},
    "refuse.store.no_file": {"en": "{url} names no file. Name one, or use memory:// for a store in memory."},
    "refuse.store.sqlite_refused": {"en": "SQLite refused the work on {path}: {error}. Please report this."},
    "refuse.store.moved": {"en": "{path} was moved, deleted or replaced while in use. Put it back, then try again."},
    "refuse.store.not_open": {"en": "{path} is not open. Open the store first."},
}
