"""Who takes part, in which environment, and what each knows: the rows of the tables.

Rules of this file:
- All know the plan, the alternatives that it names and what each tool's effect is. What a row knows beyond that
  is said in `knows`, and rows that know different things are not to be compared as if they did not.
"""

from __future__ import annotations

from typing import Any

from benchmarks.recovery.drive import Contender, python_of

HERE = "benchmarks.recovery.contenders."
ENGINE = HERE + "rerail_engine"
ORACLE = Contender("oracle", HERE + "oracle", options={"knows": True}, knows="everything")
CAREFUL = {"careful": True}
PREFECT: dict[str, Any] = {
    "beside": ("-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", "{port}", "--no-services"),
    "environ": {
        "PREFECT_API_URL": "http://127.0.0.1:{port}/api", "PREFECT_HOME": "{home}/.prefect",
        "PREFECT_LOGGING_LEVEL": "CRITICAL", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1",
    },
}  # fmt: skip

MAIN = (
    Contender("Rerail", ENGINE),
    Contender("Rerail, answered", ENGINE, answering=True, knows="a person answers its questions truthfully"),
    Contender("Rerail, verify", ENGINE, options={"verify": True}, knows="a read-only look at each effect"),
    Contender(
        "Rerail, verify, perfect mind",
        ENGINE,
        options={"verify": True, "mind": "perfect", "knows": True},
        knows="a read-only look at each effect, and a mind that knows every fault",
    ),
    Contender(
        "Rerail, verify, hostile mind",
        ENGINE,
        options={"verify": True, "mind": "hostile"},
        knows="a read-only look at each effect, and a mind that lies",
    ),
    Contender(
        "Rerail, answered, perfect mind",
        ENGINE,
        options={"mind": "perfect", "knows": True},
        answering=True,
        knows="a person answers its questions truthfully, and a mind that knows every fault",
    ),
    Contender("Rerail, hostile mind", ENGINE, options={"mind": "hostile"}, knows="a mind that lies"),
)
PEERS = (
    Contender("LangGraph, defaults", HERE + "langgraph_graph", "langgraph"),
    Contender("LangGraph, tuned", HERE + "langgraph_graph", "langgraph", {"tuned": True}),
    Contender("LangGraph, careful", HERE + "langgraph_graph", "langgraph", {"tuned": True, **CAREFUL}),
    Contender("DBOS", HERE + "dbos_workflow", "dbos"),
    Contender("DBOS, careful", HERE + "dbos_workflow", "dbos", CAREFUL),
    Contender("Prefect", HERE + "prefect_flow", "prefect", **PREFECT),
    Contender("Prefect, careful", HERE + "prefect_flow", "prefect", CAREFUL, **PREFECT),
    Contender("tenacity loop", HERE + "loop", "loop"),
    Contender("tenacity loop, careful", HERE + "loop", "loop", CAREFUL),
    Contender("retry chains by hand", HERE + "by_hand"),
)
# Rerail with one layer off in turn: what a rung brings is what is missing here.
WITHOUT = (
    Contender("no retries", ENGINE, options={"settings": {"reflection.max_step_retries": 0}}),
    Contender("no rounds", ENGINE, options={"settings": {"retry.max_retry_rounds": 0}}),
    Contender("no reflection", ENGINE, options={"settings": {"reflection.enable_step_level_reflection": False}}),
    Contender("no alternatives", ENGINE, options={"alternatives": False}),
    Contender("outputs believed", ENGINE, options={"trust_output": True}),
    Contender("one at a time", ENGINE, options={"settings": {"run.concurrency": 1}}),
    Contender("effects not declared", ENGINE, options={"effects": False}, knows="no effects of tools"),
)
ALL = (*MAIN, *PEERS, *WITHOUT)


def missing(contenders: tuple[Contender, ...]) -> list[str]:
    """Environments that are not there."""
    wanted = {"world", *(one.environment for one in contenders if one.environment)}
    return sorted(name for name in wanted if not (python_of(name).parents[1] / ".installed").exists())
