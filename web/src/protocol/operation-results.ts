/** What the methods behind the pages for operation answer, as far as this UI reads it. */

import type { DevicePairRequested } from './protocol.generated';

export interface ChannelAccount {
  accountId: string;
  name?: string;
  enabled?: boolean;
  configured?: boolean;
  running?: boolean;
  connected?: boolean;
  reconnectAttempts?: number;
  waiting?: number;
  lastInboundAt?: number;
  lastOutboundAt?: number;
  lastError?: string;
}

export interface ChannelsStatus {
  channelOrder: string[];
  channelLabels: Record<string, string>;
  channelAccounts: Record<string, ChannelAccount[]>;
}

export interface Sandbox {
  agentId: string;
  mode: string;
  scope?: string;
  backend?: string;
  workspaceAccess?: string;
  demanded?: string;
  level?: string | null;
  problem?: string;
  fix?: string;
}

export interface LoopLag {
  lagP99Ms: number;
  lagMaxMs: number;
  stalls: number;
}

export interface GatewayStatus {
  lanes: Record<string, { active: number; waiting: number; width: number }>;
  sandboxes: Sandbox[];
  loop: LoopLag;
  sessions: { count: number };
  configProblem?: string;
}

/** A message of `inbox.list` that has no outcome yet, or a reply that is not delivered. */
export interface BacklogRow {
  id: string;
  channel: string;
  accountId?: string;
  sessionKey?: string;
  sender?: string;
  chat?: string;
  preview: string;
  state: string;
  why: string;
  at: number;
  ageMs: number;
  attempts: number;
}

export interface UsageTotals {
  input: number;
  output: number;
  cacheRead: number;
  cacheWrite: number;
  totalTokens: number;
  totalCost: number;
  missingCostEntries: number;
}

export interface SpendStatus {
  day: string;
  perRunUsd: number | null;
  perDayUsd: number | null;
  usedUsd: number | null;
}

export interface SessionUsageRow {
  key: string;
  label?: string;
  agentId: string;
  channel?: string;
  updatedAt: number;
  usage: UsageTotals & { lastActivity: number; messageCounts: { total: number; errors: number } };
}

export interface SessionsUsage {
  startDate: string;
  endDate: string;
  sessions: SessionUsageRow[];
  totals: UsageTotals;
  aggregates: {
    byModel: { provider: string; model: string; count: number; totals: UsageTotals }[];
    byAgent: { agentId: string; totals: UsageTotals }[];
    daily: { date: string; tokens: number; cost: number; messages: number; toolCalls: number; errors: number }[];
  };
}

export interface UsagePoint {
  timestamp: number;
  totalTokens: number;
  cost: number;
  cumulativeTokens: number;
  cumulativeCost: number;
}

export interface UsageLogRow {
  timestamp: number;
  role: string;
  content: string;
  tokens?: number;
  cost?: number;
}

export interface AuditRow {
  seq: number;
  atMs: number;
  kind: string;
  agent: string;
  session: string;
  tool: string;
  data: Record<string, unknown>;
  hash: string;
}

export interface ConfigIssue {
  path: string;
  message: string;
  file?: string;
  line?: number;
}

export interface ConfigView {
  path: string;
  exists: boolean;
  raw: string | null;
  parsed: Record<string, unknown>;
  valid: boolean;
  hash?: string;
  issues: ConfigIssue[];
  warnings: ConfigIssue[];
}

export interface ConfigChange {
  ok: boolean;
  applied: { action: string; changed: string[]; notBuilt?: string[]; withoutEffect?: string[] };
}

export interface ConfigCheck {
  ok: boolean;
  isStale: boolean;
  issues: ConfigIssue[];
  changed?: string[];
  action?: string;
  notBuilt?: string[];
}

export interface PairedDevice {
  deviceId: string;
  displayName?: string;
  platform?: string;
  clientId?: string;
  clientMode?: string;
  remoteIp?: string;
  scopes?: string[];
  approvedAtMs?: number;
  tokens?: { role: string; scopes?: string[]; revokedAtMs?: number; lastUsedAtMs?: number; createdAtMs?: number }[];
}

export interface NodeRow {
  nodeId: string;
  displayName?: string;
  platform?: string;
  version?: string;
  commands?: string[];
  connected?: boolean;
}

export interface PresenceEntry {
  host?: string;
  ip?: string;
  mode?: string;
  version?: string;
  platform?: string;
  deviceId?: string;
  instanceId?: string;
  reason?: string;
  text?: string;
  ts: number;
}

export interface CronRow {
  id: string;
  name?: string;
  enabled?: boolean;
  state?: { nextRunAtMs?: number; lastStatus?: string; lastError?: string };
}

export interface OperationResults {
  'audit.list': { rows: AuditRow[]; nextBeforeSeq: number | null };
  'audit.verify': { ok: boolean; seq: number; hash: string; problem: string; checkedAtMs: number };
  'channels.status': ChannelsStatus;
  'config.apply': ConfigChange;
  'config.get': ConfigView;
  'config.patch': ConfigChange;
  'config.schema': { schema: Record<string, unknown>; uiHints: Record<string, { sensitive?: boolean }> };
  'config.validate': ConfigCheck;
  'cron.list': { jobs: CronRow[] };
  'device.pair.list': { pending: DevicePairRequested[]; paired: PairedDevice[] };
  'device.token.rotate': { deviceId: string; role: string; token: string };
  health: { ok: boolean; ts: number; disk?: { ok: boolean; problem?: string }; loop?: LoopLag };
  'node.list': { ts: number; nodes: NodeRow[] };
  'inbox.list': { messages: BacklogRow[]; parcels: BacklogRow[] };
  'logs.tail': { file: string; cursor: number; size: number; lines: string[]; truncated?: boolean; reset?: boolean };
  'memory.status': {
    provider?: string;
    files?: number;
    problem?: string;
    recall?: { count: number; p50Ms: number; p95Ms: number; lastMs: number } | null;
  };
  'sessions.usage': SessionsUsage;
  'sessions.usage.logs': { logs: UsageLogRow[] };
  'sessions.usage.timeseries': { sessionId: string; points: UsagePoint[] };
  status: GatewayStatus;
  'system-presence': PresenceEntry[];
  'usage.cost': { startDate: string; endDate: string; days: number; daily: (UsageTotals & { date: string })[]; totals: UsageTotals };
  'usage.status': { spend: SpendStatus };
}
