/** What methods answer, as far as this UI reads it. A method that is missing answers `unknown`. */

import type { AgentResults, ChannelsStatus, ConfigSnapshot, JsonSchema, MemoryStatus } from './agent-results';
import type {
  ApprovalPayload,
  ImagePart,
  MediaPart,
  MethodName,
  QuestionPayload,
  TextPart,
  ThinkingPart,
  ToolCallPart,
} from './protocol.generated';
import type { OperationResults } from './operation-results';
import type { CronJob } from './schedule-results';

export interface SessionDefaults {
  defaultAgentId?: string;
  mainKey?: string;
  mainSessionKey?: string;
  scope?: string;
}

export interface Hello {
  protocol: number;
  server: { version: string; host?: string; connId: string };
  features: { methods: string[]; events: string[] };
  snapshot: { sessionDefaults?: SessionDefaults; uptimeMs?: number; configPath?: string; stateDir?: string };
  policy: { maxPayload: number; tickIntervalMs: number; attachments?: { maxBytes: number; maxImageBytes: number } };
  auth?: { deviceToken?: string; role: string; scopes: string[] };
}

export type Part = TextPart | ThinkingPart | ImagePart | MediaPart | ToolCallPart;

export interface Usage {
  input?: number;
  output?: number;
  cacheRead?: number;
  cacheWrite?: number;
  totalTokens?: number;
  cost?: { total?: number };
}

/** A message of `chat.history`. */
export interface HistoryMessage {
  role: string;
  content: Part[];
  timestamp: number;
  provider?: string;
  model?: string;
  stopReason?: string;
  errorMessage?: string;
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  idempotencyKey?: string;
  details?: Record<string, unknown>;
  usage?: Usage;
  openclawAbort?: Record<string, unknown>;
  provenance?: { kind?: string; sourceChannel?: string; sourceTool?: string };
  __openclaw?: { id?: string; kind?: string; truncated?: boolean; seq?: number };
}

/** A row of `sessions.list`. */
export interface SessionRow {
  key: string;
  kind: string;
  agentId?: string;
  label?: string;
  displayName?: string;
  derivedTitle?: string;
  lastMessagePreview?: string;
  channel?: string;
  updatedAt: number;
  sessionId?: string;
  thinkingLevel?: string;
  verboseLevel?: string;
  totalTokens?: number;
  totalTokensFresh?: boolean;
  inputTokens?: number;
  outputTokens?: number;
  contextTokens?: number;
  modelProvider?: string | null;
  model?: string | null;
  hasActiveRun?: boolean;
  activeRunIds?: string[];
  queueDepth?: number;
  queueMode?: string;
  spawnedBy?: string;
  status?: string;
}

export interface ChatHistory {
  sessionKey: string;
  sessionId?: string;
  messages: HistoryMessage[];
  hasMore?: boolean;
  thinkingLevel?: string;
  verboseLevel?: string;
  sessionInfo?: SessionRow;
}

export interface ModelRow {
  id: string;
  name: string;
  provider: string;
  contextWindow?: number;
  reasoning?: boolean;
}

export interface CommandRow {
  name: string;
  textAliases?: string[];
  description: string;
  category?: string;
  acceptsArgs?: boolean;
  args?: { name: string; description?: string; required?: boolean; choices?: (string | { value: string; label?: string })[] }[];
}

/** An approval or question that was answered, expired or was cancelled. */
export interface EndedApproval extends ApprovalPayload {
  kind: 'approval' | 'question';
  state: 'allowed' | 'denied' | 'expired' | 'cancelled';
  decision: string | null;
  resolvedBy: string | null;
  resolvedAtMs: number | null;
}

/** What the system prompt of a conversation consists of; sizes are in characters. */
export interface PromptReport {
  systemPrompt: { chars: number };
  sections: { name: string; chars: number }[];
  injectedWorkspaceFiles: { name: string; path: string; rawChars?: number; injectedChars?: number; truncated?: boolean; missing?: boolean }[];
  skills: { promptChars: number; entries: { name: string; blockChars: number }[] };
  tools: { listChars: number; schemaChars: number; entries: { name: string; schemaChars?: number }[] };
}

export interface MethodResults extends OperationResults, AgentResults {
  'chat.history': ChatHistory;
  'chat.send': { runId?: string; status?: string; aborted?: boolean; runIds?: string[] };
  'chat.abort': { ok: boolean; aborted: boolean; runIds: string[] };
  'chat.message.get': {
    ok: boolean;
    unavailableReason?: string;
    message?: HistoryMessage;
    image?: { type: 'image'; mimeType: string; data: string };
  };
  'commands.list': { commands: CommandRow[] };
  'exec.approval.list': ApprovalPayload[];
  'exec.approval.history': { approvals: EndedApproval[] };
  'exec.approval.resolve': { ok: boolean };
  'models.list': { models: ModelRow[] };
  'question.list': { questions: QuestionPayload[] };
  'prompt.get': { sessionKey: string; agentId: string; report: PromptReport };
  'sessions.branch': { ok: boolean; key: string; draft?: string };
  'sessions.create': { ok: boolean; key: string; entry?: Record<string, unknown> };
  'sessions.list': { sessions: SessionRow[]; count: number; defaults?: Record<string, unknown> };
  'sessions.patch': { ok: boolean; key: string };
  'channels.status': ChannelsStatus;
  'config.get': ConfigSnapshot;
  'config.patch': { ok: boolean; applied: { action: string; changed: string[] } };
  'config.schema': { schema: JsonSchema; uiHints: Record<string, { sensitive?: boolean }> };
  'cron.list': { jobs: CronJob[] };
  'memory.status': MemoryStatus;
}

export type ResultOf<M extends MethodName> = M extends keyof MethodResults ? MethodResults[M] : unknown;
