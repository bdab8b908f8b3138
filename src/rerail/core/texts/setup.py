"""What is wrong with settings, models, prompts and MCP servers, and what to do instead."""

from __future__ import annotations

SETUP: dict[str, dict[str, str]] = {
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
