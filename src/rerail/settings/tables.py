"""The tables of the settings, with their defaults, limits and choices (contract, section 11)."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of `rerail.toml`."""


class RunTable(Table, frozen=True):
    concurrency: int = 8
    tool_concurrency: dict[str, int] = {}
    provider_concurrency: dict[str, int] = {}
    step_timeout: float = 300.0
    max_attempts: int | None = None
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    on_doubt: Literal["wait", "fail"] | None = None  # if neither the step nor its tool decides; see contract E3


class RetryTable(Table, frozen=True):
    backoff_base: float = 1.0
    backoff_factor: float = 2.0
    backoff_cap: float = 30.0
    jitter: bool = True
    max_wait: float = 600.0
    max_retry_rounds: int = 1
    max_retries: int = 3


class ReflectionTable(Table, frozen=True):
    enable_step_level_reflection: bool = True
    mode: str = "hybrid"
    max_step_retries: int = 3
    max_single_step_repairs: int = 1
    max_task_replanning_attempts: int = 1
    max_consecutive_failures: int = 3
    replan: str = "keep"
    memory: bool = False


class ClassifyTable(Table, frozen=True):
    transient_error: list[str] = []
    parameter_error: list[str] = []
    tool_error: list[str] = []
    dependency_error: list[str] = []
    decomposition_error: list[str] = []
    permanent_error: list[str] = []
    unknown_error: list[str] = []


class LogTable(Table, frozen=True):
    verbose: bool = False


class EvaluationTable(Table, frozen=True):
    judge: bool = True
    shortcut: bool = True
    history_window: tuple[int, int] = (5, 12)
    settle: float | Literal["never"] = 5.0  # seconds until a look can read the effect of a `once` tool


class ArtifactsTable(Table, frozen=True):
    memory: int = 10
    ttl_hours: float = 24.0


class StoreTable(Table, frozen=True):
    url: str = "sqlite:///.rerail/runs.db"
    durability: str = "full"
    reconnect_seconds: float = 30.0
    workspace: str | None = None  # the folder of the runs' files; on several machines, a shared one


class WorkerTable(Table, frozen=True):
    jobs: int | None = None  # processes of `retry --all-failed`; none: twice the cores, eight at most
    runs: int = 16  # runs that one `rerail worker` drives at once
    grace: float = 30.0  # seconds that calls under way get to end, when a worker stops


class WorkersTable(Table, frozen=True):
    silent_is_dead: bool = False  # a supervisor guarantees that a silent worker no longer acts


class RayTable(Table, frozen=True):
    steps: bool = False  # calls of tools are tasks of the cluster
    address: str | None = None  # none: RAY_ADDRESS, or this machine's cluster, else one for this process alone
    env: dict[str, Any] = {}  # Ray's runtime_env: working_dir, pip, env_vars, …
    cpus: float = 1.0  # CPUs of a step without its own number
    max_wait: float = 600.0  # seconds that a call may wait for room
    gone_after: float = 40.0  # seconds without its head after which the cluster is gone; Ray ends the process at 60


class ToolsTable(Table, frozen=True):
    modules: list[str] = []
    allow_hosts: list[str] = []
    max_output: int = 64 * 1024 * 1024
    shell: dict[str, Any] = {}
    http: dict[str, Any] = {}
    idempotent_for: dict[str, float] = {}  # tool → seconds for which its service remembers an idempotency key
    default_effect: str | None = None  # of undeclared Python functions; none: repeatable, with a warning
    require_effect: bool = False  # plans may not use undeclared functions


class McpTable(Table, frozen=True):
    servers: dict[str, Any] = {}
    trust_elicitation: bool = False  # what an MCP client says that a person answered counts as a person's answer


class SecretsTable(Table, frozen=True):
    # Patterns of environment variables with values to hide.
    env: tuple[str, ...] = ("*_API_KEY", "*_ACCESS_KEY", "*_SECRET", "*_SECRET_KEY", "*_TOKEN", "*_PASSWORD")


class NotifyTable(Table, frozen=True):
    command: list[str] = []
    webhook: str | None = None
    on: tuple[Literal["done", "failed", "waiting"], ...] = ("done", "failed", "waiting")
    timeout: float = 10.0
    retries: int = 2


class TokenTable(Table, frozen=True):
    """A named token: `rerail token add NAME` writes it."""

    digest: str
    roles: tuple[Literal["read", "act", "approve", "events", "admin"], ...] = ("read",)
    expires: str | None = None  # a date or a time, in UTC unless it says otherwise


class ServerTable(Table, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8420
    token: str | None = None
    allow: tuple[Literal["shell", "http"], ...] = ()  # kinds of tools that external plans may use, too
    allow_hosts: list[str] = []  # host names of the server, besides addresses and this machine's own
    allow_origins: list[str] = []  # web pages of other origins that may use it
    heartbeat: float = 15.0
    max_body: int = 8 * 1024 * 1024
    max_readers: int = 500  # streams and sockets at once
    max_behind: int = 5_000  # events that a reader may fall behind before it is disconnected
    tokens: dict[str, TokenTable] = {}  # names → tokens of their own
    audit_reads: bool = False  # reads of artifacts are recorded too


class RoleTable(Table, frozen=True):
    """A role's own model; missing settings come from the common one."""

    name: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    temperature: float | None = None
    timeout: float | None = None
    fallback: str | None = None


class ModelTable(Table, frozen=True):
    name: str | None = None
    base_url: str | None = None
    key_env: str | None = None
    temperature: float | None = 0.0
    timeout: float = 60.0
    retries: int = 2
    fallback: str | None = None
    output: Literal["auto", "native", "tool", "text"] = "auto"
    prices: dict[str, tuple[float, float]] = {}  # model → price of a million tokens in, and out
    max_reasks: int = 2
    max_context_chars: int = 60_000
    prompts: str | None = None  # a folder with custom prompts
    plan: RoleTable = RoleTable()
    reflect: RoleTable = RoleTable()
    repair: RoleTable = RoleTable()
    replan: RoleTable = RoleTable()
    judge: RoleTable = RoleTable()


ROLES: Final = ("plan", "reflect", "repair", "replan", "judge")
MODEL_TABLES: Final = ("model", *(f"model.{role}" for role in ROLES))

CHOICES: dict[str, tuple[str, ...]] = {
    "model.output": ("auto", "native", "tool", "text"),
    "reflection.mode": ("hybrid", "rules", "model"),
    "reflection.replan": ("keep", "full"),
    "store.durability": ("full", "normal"),
    "tools.default_effect": ("once", "repeatable", "read"),
}

# The lowest sensible value; 0 switches a limit off where the contract says so.
LOWEST: dict[str, float] = {
    "run.concurrency": 0, "run.tool_concurrency": 0, "run.provider_concurrency": 0, "run.step_timeout": 0.001,
    "run.max_attempts": 0, "run.max_tokens": 0, "run.max_cost": 0,
    "run.max_seconds": 0, "evaluation.settle": 0, "tools.idempotent_for": 0,
    "retry.backoff_base": 0, "retry.backoff_factor": 1, "retry.backoff_cap": 0,
    "retry.max_wait": 0, "retry.max_retry_rounds": 0, "retry.max_retries": 0, "reflection.max_step_retries": 0,
    "reflection.max_single_step_repairs": 0, "reflection.max_task_replanning_attempts": 0,
    "reflection.max_consecutive_failures": 0, "artifacts.memory": 0, "artifacts.ttl_hours": 0,
    "store.reconnect_seconds": 0, "tools.max_output": 1, "model.retries": 0, "model.prices": 0, "model.max_reasks": 0,
    "model.max_context_chars": 1000, "worker.jobs": 1, "server.port": 0, "server.heartbeat": 0.1,
    "server.max_body": 1024, "server.max_readers": 1, "server.max_behind": 1,
    "worker.runs": 1, "worker.grace": 0, "ray.cpus": 0, "ray.gone_after": 0, "ray.max_wait": 0,
    "notify.timeout": 0.001, "notify.retries": 0,
    **{f"{table}.timeout": 0.001 for table in MODEL_TABLES}, **{f"{table}.temperature": 0 for table in MODEL_TABLES},
}  # fmt: skip

# Tombstones: keys of earlier versions, each with the texts that explain its end and what to do now.
REMOVED: Final = {
    "ray.coordinator": ("refuse.ray.coordinator", "hint.ray.coordinator"),
    "mcp.from_plans": ("refuse.mcp.from_plans", "hint.mcp.from_plans"),
}

ADDRESSES: Final = frozenset(f"{table}.base_url" for table in MODEL_TABLES)

SECRET: Final = frozenset(
    {"mcp.servers", "notify.webhook", "notify.command", "server.token"}
)  # values that are not shown

VARIABLES: Final = frozenset(f"{table}.key_env" for table in MODEL_TABLES)

# The settings that govern a run and are recorded with it, by the policy's names: a replay may change these.
RECORDED: Final[dict[str, str]] = {
    **{f"run.{name}": name for name in RunTable.__struct_fields__},
    **{f"retry.{name}": name for name in RetryTable.__struct_fields__},
    **{f"reflection.{name}": name for name in ReflectionTable.__struct_fields__ if name != "memory"},
    "reflection.enable_step_level_reflection": "reflect",
    "reflection.mode": "reflection_mode",
    "evaluation.judge": "judge",
    "evaluation.shortcut": "shortcut",
    "evaluation.settle": "settle",
    "tools.default_effect": "default_effect",
    "tools.require_effect": "require_effect",
}
