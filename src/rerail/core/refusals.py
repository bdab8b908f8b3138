"""Why something was refused, and what to do instead: the part of the catalogue that exceptions speak (SPEC T12).

Rules of this file:
- `refuse.` says what cannot be, `hint.` what to type instead. English is complete; Chinese follows key by key.
"""

from __future__ import annotations

REFUSALS: dict[str, dict[str, str]] = {
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
    # Plans that cannot be read or run.
    "refuse.plan.duplicate_id": {"en": "the id is used {count} times; ids must be unique"},
    "refuse.plan.cycle": {"en": "the steps need each other in a circle: {path}; remove one of these needs"},
    "refuse.plan.bad_args": {"en": "args{where} for tool {name!r}: {message}"},
    "refuse.plan.unknown_key": {"en": "unknown key {prefix}{key!r}"},
    "refuse.plan.unknown_key_near": {"en": "unknown key {prefix}{key!r}; did you mean {near!r}?"},
    "refuse.plan.no_reference": {"en": "{error} is not a reference; write ${{step.path}}, or $${{ for a literal ${{"},
    "refuse.plan.no_such_step": {"en": "unknown step {name!r}"},
    "refuse.plan.no_such_step_near": {"en": "unknown step {name!r}; did you mean {near!r}?"},
    "refuse.plan.no_such_tool": {"en": "unknown tool {name!r}"},
    "refuse.plan.no_such_tool_near": {"en": "unknown tool {name!r}; did you mean {near!r}?"},
    "refuse.plan.holds_no_steps": {"en": "{source} holds no steps; write a list of steps"},
    "refuse.plan.servers_by_name": {"en": "mcp: expected servers by name, {{name: {{command: …}}}}, got {kind}"},
    "refuse.plan.of_step": {"en": "step {step!r}: {message}", "zh": "步骤 {step!r}：{message}"},
    "refuse.plan.more_faults": {"en": "… and {count} more", "zh": "……另有 {count} 处"},
    "refuse.plan.no_steps": {"en": "the plan has no steps; add at least one"},
    "refuse.plan.unknown_tool": {"en": "{unknown}"},
    "refuse.plan.self_need": {"en": "the step needs itself; remove that need"},
    "refuse.plan.unknown_reference": {"en": "{error} refers to {hint} (write $${{ for a literal ${{)"},
    "refuse.plan.unknown_alternative": {"en": "alternatives: {unknown}"},
    "refuse.plan.unknown_need": {"en": "needs {unknown}"},
    "refuse.plan.too_large": {"en": "{path} is larger than {limit:,} bytes"},
    "refuse.plan.no_file": {"en": "there is no plan file {path!r}"},
    "refuse.plan.not_utf8": {"en": "{path} is not UTF-8 text: {reason}"},
    "refuse.plan.cannot_read": {"en": "cannot read {path!r}: {error}"},
    "refuse.plan.key_twice": {"en": "cannot read the plan: {name}: the key {twice!r} is there twice"},
    "refuse.plan.no_yaml": {"en": "cannot read the plan: {name} is neither YAML nor JSON: {detail}"},
    "refuse.plan.too_deep": {"en": "cannot read the plan: {name} is nested too deeply"},
    "refuse.plan.no_plan": {"en": "cannot read the plan: {error}"},
    "refuse.plan.empty": {"en": "cannot read the plan: {name} is empty"},
    "refuse.plan.steps_missing": {"en": "the plan has no 'steps'; write steps: [{{id: …, tool: …}}]"},
    "refuse.plan.steps_no_list": {"en": "'steps' is a list of steps, not {kind}"},
    "refuse.plan.no_mapping": {"en": "a plan is a mapping with 'steps', not {kind}"},
    "refuse.plan.given_twice": {"en": "{prefix}{name!r} is given twice (as {key!r} too)"},
    "refuse.plan.args_not_json": {"en": "args: they are not plain JSON: {error}"},
    "refuse.plan.args_too_deep": {"en": "args: they are nested too deeply"},
    "refuse.plan.expected": {"en": "{name}: expected {expected}, got {kind}"},
    "refuse.plan.tool_missing": {"en": "the step has no 'tool'; name the tool to call"},
    "refuse.plan.id_empty": {"en": "the id is empty; give the step a name"},
    "refuse.plan.id_too_long": {"en": "the id is longer than {limit} characters"},
    "refuse.plan.either_value_or_tool": {"en": "{name}: give either 'value' or 'tool'"},
    "refuse.plan.schema_faulty": {"en": "{name}.schema: {problem}"},
    "refuse.plan.follow_up_unreadable": {"en": "follow_up: {error}"},
    "refuse.plan.step_no_mapping": {"en": "step {index} is {kind}; a step is a mapping with 'tool'"},
    "refuse.plan.objective_no_text": {"en": "objective: expected a text, got {kind}"},
    "refuse.plan.in_follow_up": {"en": "follow_up: {message}"},
    "refuse.plan.self_reference": {"en": "{ref} refers to the step's own output"},
    "refuse.plan.unknown_other_tool": {"en": "{label}: {unknown}"},
    # Minds and models.
    "refuse.mind.no_steps": {"en": "the new plan has no steps"},
    "refuse.mind.repeats": {
        "en": "it would repeat what step {step!r} has done, or may have; that must not happen twice"
    },
    "refuse.mind.repair_unchanged": {"en": "the repaired step is the failed one, unchanged"},
    "refuse.mind.repair_keeps_this_id": {"en": "a repair keeps the id {id!r}; got {id2!r}"},
    "refuse.mind.not_yours": {"en": "{name}: {why}; leave it out"},
    "refuse.mind.repair_keeps_id": {"en": "a repair keeps the id; got {id!r}"},
    "refuse.mind.prompt_unusable": {"en": "cannot use the prompt {path!r}: {error}"},
    "refuse.mind.no_extra": {"en": "models need an extra that is not installed"},
    "refuse.mind.no_model_named": {"en": "model {name!r} names a provider and no model; write provider:model"},
    "refuse.mind.no_provider": {"en": "model {name!r} does not say whose it is; write {example} or set model.base_url"},
    "refuse.mind.no_prompts": {
        "en": "model.prompts: there is no folder {folder!r}; make one with: rerail prompts eject"
    },
    "hint.mind.no_extra": {"en": "pip install 'rerail[llm]'"},
    # Settings and MCP servers.
    "hint.mcp.mend": {"en": "mend mcp.servers.{server} in rerail.toml, or take it out"},
    "hint.mcp.start_or_mend": {"en": "start the server, or mend mcp.servers.{server} in rerail.toml, or take it out"},
    "refuse.settings.unknown": {"en": "unknown setting {what} (from {source}); known: {known}"},
    "refuse.settings.unknown_near": {"en": "unknown setting {what} (from {source}); did you mean {near!r}?"},
    "refuse.settings.choices": {"en": "{name} = {found!r} (from {source}): expected one of {choices}"},
    "refuse.settings.too_low": {"en": "{name} = {found!r} (from {source}): must be at least {lowest:g}"},
    "refuse.settings.no_address": {
        "en": "{name} = {found!r} (from {source}): write an address such as http://localhost:11434/v1"
    },
    "refuse.settings.no_variable": {
        "en": "{name} (from {source}): name the environment variable that holds the key, not the key"
    },
    "refuse.settings.window": {
        "en": "{name} = {found!r} (from {source}): write the fewest events first, then the most"
    },
    "refuse.settings.wrong_kind": {"en": "{name} = {shown} (from {source}): {error}"},
    "refuse.settings.cannot_read": {"en": "cannot read {path}: {error}"},
    "refuse.settings.set_how": {"en": "--set {pair!r}: write table.key=value, for example retry.max_retries=5"},
    "refuse.settings.no_table": {"en": "[{table}] is a table of keys (from {source})"},
    "refuse.settings.nested_table": {"en": "[{table}.{key}] is a table of keys (from {source})"},
    "refuse.settings.store_unknown": {
        "en": "unknown store address {url!r}; write sqlite:///path/to/runs.db or memory://"
    },
    "refuse.settings.model_unnamed": {
        "en": "model.base_url is set, but model.name is not; name the model to use there"
    },
    "refuse.settings.inside_a_loop": {
        "en": "rerail.run cannot be called inside an event loop; use: async with rerail.Engine(…) as engine"
    },
    "refuse.settings.store_without_file": {
        "en": "the store address {url!r} names no file; write sqlite:///path/to/runs.db"
    },
    "refuse.settings.two_tools": {"en": "two tools are named {name!r}; give one of them another name"},
    "refuse.settings.plan_faulty": {"en": "the plan cannot be run:"},
    "refuse.settings.two_tools_of_servers": {
        "en": "two tools are named {name!r}: one of MCP server {server!r}, one of {other}"
    },
    "hint.settings.two_tools_of_servers": {
        "en": 'write prefix = "{server}." in mcp.servers.{server}, and name the tool {server}.{name} in plans'
    },
    "refuse.settings.plan_or_objective": {"en": "give either a plan or an objective"},
    "refuse.settings.fallback_faulty": {"en": "the fallback plan cannot be run; nothing was started:"},
    "refuse.settings.planning_failed": {"en": "no plan was made for the objective: {problem}"},
    "refuse.mcp.no_extra": {"en": "this needs the package 'mcp', which is not installed"},
    "hint.mcp.no_extra": {"en": "pip install 'rerail[mcp]'"},
    "refuse.mcp.no_mapping": {"en": "{label}: expected a mapping with 'command' or 'url', got {name}"},
    "refuse.mcp.faulty": {"en": "{label}: {fault}"},
    "refuse.mcp.command_or_url": {
        "en": "{label}: give either 'command' (a program to start) or 'url' (an address); {both}"
    },
    "refuse.mcp.goes_with": {"en": "{label}: {odd!r} goes with {value}"},
    "refuse.mcp.no_such_tool": {"en": "mcp.servers.{name}: the server has no tool {word!r}; {unknown}"},
    "refuse.mcp.no_plan": {"en": "cannot read the plan: a plan is a mapping with 'steps'"},
    "refuse.mcp.starts_over": {"en": "starting over calls everything again"},
    "hint.mcp.starts_over": {"en": "look at it with dry_run, then say confirmed: true"},
    "refuse.mcp.tool_unknown": {"en": "there is no tool {name!r}"},
    "hint.mcp.tool_unknown": {"en": "there are {schemas}"},
    "hint.mcp.see_schema": {"en": "see the tool's schema"},
    "refuse.mcp.no_address": {"en": "{address!r} is no address"},
    "hint.mcp.no_address": {"en": "write HOST:PORT, as 127.0.0.1:8321"},
    "refuse.mcp.exposed": {"en": "{host} can be reached by other machines, and whoever reaches it can call your tools"},
    "hint.mcp.exposed": {
        "en": "use 127.0.0.1; or set RERAIL_TOKEN to a secret that callers must know, and add --expose"
    },
    "refuse.mcp.cannot_listen": {"en": "cannot listen on {address}: {value}"},
}
