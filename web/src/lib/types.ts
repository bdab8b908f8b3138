// The shapes of the HTTP API, as far as the page reads them. The server owns the truth; a field that may be missing in
// an older or newer server is optional here, so that the page shows less instead of nothing.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type StepStatus =
  | "pending" | "ready" | "running" | "waiting" | "succeeded" | "degraded" | "failed" | "skipped" | "in_doubt" | "cancelled";
export type RunStatus = "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled";

export interface StepError {
  code: string;
  category?: string;
  message: string;
  hint?: string | null;
}

export interface Span {
  attempt: number;
  tool: string;
  from: number;
  to: number | null;
  outcome: string;
  code?: string | null;
}

export interface Wait {
  from: number;
  until: number | null;
  why?: string | null;
}

export interface StepView {
  id: string;
  title: string;
  tool: string;
  stage: string;
  status: StepStatus;
  code: string | null;
  needs: string[];
  soft?: string[];
  optional?: boolean;
  confirm?: boolean | string | null;
  effect?: string;
  attempts: number;
  retries_left?: number | null;
  error: StepError | null;
  degraded?: string | null;
  stale?: string | null;
  unverified?: boolean;
  disputed?: boolean;
  waiting_for?: string | null;
  started_at: number | null;
  ended_at: number | null;
  elapsed: number;
  next_try_at?: number | null;
  rung?: string | null;
  files?: string[];
  spans?: Span[];
  waits?: Wait[];
  actions?: string[];
}

export interface Budget {
  name: string;
  used: number;
  of: number | null;
  unit?: string;
}

export interface WaitingOn {
  step: string;
  for: string;
  question?: string;
  tool?: string;
  args?: Json;
  made_from_degraded?: Record<string, string>;
  files?: string[];
  digest?: string | null; // of the call: what a confirmation is to
  before?: { tool: string; args?: Json; digest?: string | null } | null; // the call that was agreed to before
  changed_files?: string[];
}

export interface Judgement {
  judge?: string;
  complete?: boolean;
  missing?: string[];
  unsatisfactory?: string[];
  disputed?: string[];
  reason?: string;
}

export interface RunView {
  run_id: string;
  objective: string;
  status: RunStatus;
  shown_status?: string;
  failed_stage?: string;
  success: boolean;
  complete: boolean;
  degraded: boolean;
  interrupted?: boolean;
  owner?: string | null;
  parent?: string | null;
  follow_up?: string | null;
  round: number;
  retries: number;
  revision: number;
  seq: number;
  created_at: number;
  updated_at?: number;
  ended_at: number | null;
  elapsed: number;
  counts: Record<string, number>;
  summary: string;
  exec?: Record<string, unknown>;
  failed_steps: FailedStep[];
  consequences: string[];
  disputed: string[];
  waiting_on: WaitingOn[];
  never_started: string[];
  stopped?: string;
  judge?: string;
  judgement?: Judgement | null;
  budgets: Budget[];
  actions: string[];
  critical: string[];
  steps: Record<string, StepView>;
  order?: string[];
  at?: number; // the server's clock
  paused?: boolean;
  retry_history?: Json[];
}

export interface FailedStep {
  id?: string;
  step?: string;
  tool?: string;
  code?: string;
  reason?: string;
  message?: string;
  category?: string;
}

export interface RunPatch {
  seq: number;
  run?: Partial<RunView>;
  steps?: Record<string, StepView>;
  order?: string[];
}

export interface RunRow {
  run_id: string;
  status: RunStatus;
  shown_status?: string;
  failed_stage?: string;
  objective: string;
  parent: string | null;
  created_at: number;
  updated_at: number;
  events: number;
  owner: string | null;
  interrupted: boolean;
  degraded: boolean;
  counts?: Record<string, number>;
}

export interface Reflection {
  by?: string;
  category?: string;
  root_cause?: string;
  recoverable?: boolean;
  confidence?: number | null;
  suggestion?: Json;
  alternatives?: string[];
  rung?: string;
  refused?: string[];
}

export interface Try {
  attempt: number;
  tool: string;
  at: number;
  ended_at: number | null;
  args?: Json;
  changed?: Record<string, [Json, Json]> | null;
  outcome: string;
  error?: StepError | null;
  rung?: string | null;
  why?: string | null;
  reflection?: Reflection | null;
  logs?: { at: number; text: string }[];
  called?: boolean;
  elapsed?: number | null;
  verified?: { effect: string; reason: string } | null;
}

export interface ArtifactRow {
  name: string;
  step: string;
  size?: number;
  media?: string;
  digest?: string;
  path?: string;
}

export interface StepDetail extends StepView {
  args?: Json;
  output?: Json;
  artifacts?: ArtifactRow[];
  tries?: Try[];
  reflections?: Json[];
  waiting_on?: WaitingOn | null;
  why?: string;
  plan_step?: Json;
  downstream?: string[];
}

export interface EventRecord {
  seq: number;
  run: string;
  at: number;
  type: string;
  step?: string;
  words?: string; // what it says, in the reader's language
  [key: string]: unknown;
}

export interface Revision {
  revision: number;
  seq?: number;
  at?: number;
  by?: string;
  reason?: string;
  kind?: string;
  steps: PlanStep[];
}

export interface PlanStep {
  id: string;
  tool?: string;
  [key: string]: Json | undefined;
}

export interface LogLine {
  at: number | null; // nobody knows when a tool printed
  kind: string;
  text: string;
  step?: string;
}

export interface Preview {
  roots: string[];
  rerun: { step: string; why: string }[];
  kept: string[];
  once: string[];
  estimate: Record<string, number>;
  passed?: string[];
  stage?: string | null;
  files?: string[];
  damaged?: Record<string, string>;
  backup?: string | null;
  asks?: string[];
  edited?: string[];
  becomes?: Record<string, StepStatus>;
  leads_to?: RunStatus | null;
}

export interface Fault {
  code: string;
  step?: string | null;
  message: string;
  hint?: string | null;
}

export interface PlanCheck {
  ok: boolean;
  faults: Fault[];
  steps?: number | Json[];
}

export interface RetriedRow {
  run_id: string;
  objective: string;
  before: RunStatus | "interrupted";
  ok: boolean;
  preview: Preview | null;
  problem: { code: string; detail: string; hint?: string } | null;
}

export interface ManyRetried {
  dry_run: boolean;
  runs: RetriedRow[];
  left: number;
}

export interface ToolRow {
  name: string;
  description?: string;
  effect?: string;
  timeout?: number | null;
  source?: string;
  schema?: { properties?: Record<string, Json>; required?: string[]; additionalProperties?: Json };
}

export interface SettingRow {
  key: string;
  value: Json;
  source: string;
}

export interface Lesson {
  failure: string;
  rung: string;
  worked: number;
}

export interface Health {
  ok: boolean;
  version: string;
  store?: string;
  read_only?: boolean;
  language?: string;
}

/** What a run or a step took. */
export interface ReplaySpent { status: string; calls: number; waited: number; seconds?: number; tokens?: number; cost?: number }

/** A recorded run, and what it would have been under other settings. */
export interface Replay {
  run_id: string;
  settings: Record<string, { recorded: Json; replayed: Json }>;
  known: boolean;
  same: boolean;
  branch: number | null;
  recorded: ReplaySpent;
  replayed: ReplaySpent;
  steps: { step: string; changed: boolean; other_output: boolean; recorded: ReplaySpent; replayed: ReplaySpent }[];
  unknown: { what: string; step?: string | null; tool?: string | null }[];
}
