/** What the methods behind the pages of agents, memory and channels answer. */

import type { ScheduleResults } from './schedule-results';
import type { SkillResults } from './skill-results';

export interface AgentRow {
  id: string;
  name?: string;
  identity?: { name?: string; theme?: string; emoji?: string; avatar?: string; avatarUrl?: string };
  /** The model of conversations that chose none; absent when it cannot be found. */
  model?: { primary: string };
}

export interface AgentFile {
  name: string;
  path: string;
  missing: boolean;
  size?: number;
  updatedAtMs?: number;
  content?: string;
}

/** What a prompt keeps of the files of an agent. */
export interface FilesPreview {
  maxFileChars: number;
  maxTotalChars: number;
  files: { name: string; missing: boolean; rawChars: number; keptChars: number; truncated: boolean }[];
  /** The text of the file that was named. */
  kept?: string;
}

export interface PolicyRow {
  tool: string;
  action: 'allow' | 'ask' | 'deny';
  layer: string;
  reason: string;
}

export interface PolicyExplanation extends PolicyRow {
  sessionKey: string;
  place?: string | null;
  isSandboxed?: boolean;
  verdicts: { layer: string; action: string | null; reason: string }[];
  notes: string[];
}

export interface ConfigSnapshot {
  path: string;
  exists: boolean;
  raw: string | null;
  parsed: Record<string, unknown>;
  valid: boolean;
  hash?: string;
  issues: { path: string; message: string }[];
  warnings: { path: string; message: string }[];
}

export interface JsonSchema {
  [key: string]: unknown;
  type?: string;
  title?: string;
  description?: string;
  properties?: Record<string, JsonSchema>;
  anyOf?: JsonSchema[];
  enum?: unknown[];
  const?: unknown;
  items?: JsonSchema;
  default?: unknown;
}

export interface MemoryStatus {
  agentId: string;
  workspaceDir?: string;
  backend?: string;
  provider?: string;
  model?: string;
  why?: string;
  files?: number;
  lines?: number;
  chunks?: number;
  vectors?: number;
  dirty?: boolean;
  fallback?: { from: string; reason: string } | null;
  problem?: string;
  notes?: string[];
  recall?: { count: number; p50Ms: number; p95Ms: number; lastMs: number } | null;
}

export interface MemoryHit {
  path: string;
  startLine: number;
  endLine: number;
  score: number;
  snippet: string;
  source: string;
  citation: string;
}

export interface MemoryNote {
  path: string;
  day: string | null;
  size: number;
  updatedAtMs: number;
  audience: string;
}

export interface SubagentRow {
  index?: number;
  runId: string;
  sessionKey: string;
  requesterSessionKey?: string;
  agentId?: string;
  label?: string;
  task?: string;
  status: string;
  error?: string;
  model?: string;
  spawnDepth?: number;
  createdAt?: number;
  startedAt?: number;
  endedAt?: number;
  runtimeMs: number;
  totalTokens?: number;
  costUsd?: number;
}

export interface ChannelAccount {
  accountId: string;
  name?: string;
  enabled?: boolean;
  configured?: boolean;
  running?: boolean;
  connected?: boolean;
  reconnectAttempts?: number;
  waiting?: number;
  lastStartAt?: number;
  lastInboundAt?: number;
  lastOutboundAt?: number;
  lastError?: string;
  dmPolicy?: string;
  probe?: { ok: boolean; error?: string; identity?: string; elapsedMs?: number };
}

export interface ChannelsStatus {
  channelOrder: string[];
  channelLabels: Record<string, string>;
  channelAccounts: Record<string, ChannelAccount[]>;
}

export interface PairingRequest {
  channel: string;
  accountId: string;
  id: string;
  code: string;
  name: string;
  createdAtMs: number;
  expiresAtMs: number;
}

export interface WizardStep {
  id: string;
  type: 'note' | 'select' | 'text' | 'confirm' | 'multiselect' | 'progress' | 'action';
  title?: string;
  message?: string;
  options?: { value: string; label: string; hint?: string }[];
  initialValue?: unknown;
  placeholder?: string;
  sensitive?: boolean;
}

export interface WizardState {
  sessionId?: string;
  done: boolean;
  status: 'running' | 'done' | 'cancelled' | 'error';
  step?: WizardStep;
  error?: string;
}

export interface AgentResults extends ScheduleResults, SkillResults {
  'agents.create': { ok: boolean; agentId: string; name: string };
  'agents.delete': { ok: boolean; agentId: string };
  'agents.files.get': { agentId: string; workspace: string; file: AgentFile };
  'agents.files.list': { agentId: string; workspace: string; files: AgentFile[] };
  'agents.files.preview': FilesPreview;
  'agents.files.set': { ok: boolean; file: AgentFile };
  'agents.list': { defaultId: string; mainKey: string; agents: AgentRow[] };
  'agents.update': { ok: boolean; agentId: string };
  'channels.logout': { cleared: boolean };
  'channels.pairing.approve': { ok: boolean; request: PairingRequest };
  'channels.pairing.dismiss': { ok: boolean; request: PairingRequest };
  'channels.pairing.list': { requests: PairingRequest[] };
  'memory.get': { path: string; text: string; from: number; lines: number; more: boolean };
  'memory.index': { indexed: string[]; removed: string[]; unchanged: number; problem?: string };
  'memory.notes': { notes: MemoryNote[]; total: number; skipped: { path: string; why: string }[] };
  'memory.search': { results: MemoryHit[]; provider: string; mode: string; notes: string[]; fallback?: { from: string; reason: string } | null };
  'models.status': { model: string; why: string; name: string; problem: { message: string; fix: string } | null };
  'policy.explain': PolicyExplanation;
  'policy.list': { sessionKey: string; tools: PolicyRow[] };
  'subagents.kill': { text: string };
  'subagents.list': { ts: number; total: number; active: SubagentRow[]; recent: SubagentRow[] };
  'subagents.log': { sessionKey: string; messages: { role: string; text: string; timestamp?: number }[]; text: string };
  'subagents.steer': { text: string };
  'wizard.cancel': { status: string };
  'wizard.next': WizardState;
  'wizard.start': WizardState;
}
