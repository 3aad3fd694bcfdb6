// Written by web/generate_protocol.py from the gateway itself. Do not edit.

/** `exec.approval.requested`: a call that waits for a person. `request` has `title`, `detail`, `reason`, `always`, `tool`, `toolCallId`, `agentId`, `sessionKey` and more. */
export interface ApprovalPayload {
  id: string;
  request: Record<string, unknown>;
  createdAtMs: number;
  expiresAtMs: number;
}

/** `exec.approval.resolved`: an approval was answered, or expired. */
export interface ApprovalResolvedPayload {
  id: string;
  decision: string | null;
  resolvedBy: string | null;
  ts: number;
}

/** `chat`: the text so far of a run, then exactly one end. */
export interface ChatEvent {
  runId: string;
  sessionKey: string;
  seq: number;
  state: 'delta' | 'final' | 'aborted' | 'error';
  message?: ChatMessage;
  errorMessage?: string;
  stopReason?: string;
  deltaText?: string;
  replace?: boolean;
}

/** The message of a `chat` event. */
export interface ChatMessage {
  role: string;
  content: (TextPart | ThinkingPart | ImagePart | MediaPart | ToolCallPart)[];
  timestamp: number;
  stopReason?: string;
}

/** Start or end of a compaction. */
export interface CompactionData {
  phase: 'start' | 'end';
  willRetry?: boolean;
}

/** `agent` with stream `compaction`. */
export interface CompactionEvent {
  runId: string;
  seq: number;
  ts: number;
  sessionKey: string;
  stream: 'compaction';
  data: CompactionData;
}

/** `cron`: a job was added, changed or removed, or a run of it started or finished. */
export interface CronEvent {
  jobId: string;
  action: string;
  runAtMs?: number;
  status?: string;
  error?: string;
  summary?: string;
  sessionKey?: string;
  durationMs?: number;
  nextRunAtMs?: number;
}

/** `device.pair.requested`: a device that wants to connect. */
export interface DevicePairRequested {
  requestId: string;
  deviceId: string;
  displayName?: string | null;
  platform?: string | null;
  clientId?: string | null;
  role?: string | null;
  scopes?: string[] | null;
  remoteIp?: string | null;
  ts?: number;
}

/** `device.pair.resolved`: a device was approved or rejected. */
export interface DevicePairResolved {
  requestId: string;
  deviceId: string;
  decision: string;
  ts: number;
}

/** An error that does not end the run, or a gap in its events. */
export interface ErrorData {
  message?: string;
  reason?: string;
  expected?: number;
  received?: number;
}

/** `agent` with stream `error`. */
export interface ErrorEvent {
  runId: string;
  seq: number;
  ts: number;
  sessionKey: string;
  stream: 'error';
  data: ErrorData;
}

/** An image; its data is loaded with `chat.message.get` and `index`. */
export interface ImagePart {
  type: 'image';
  mimeType: string;
  omitted: boolean;
  bytes: number;
  index?: number;
}

/** Where the client says a message comes from; the transcript records it. */
export interface InputProvenanceParams {
  kind: 'external_user' | 'inter_session' | 'internal_system';
  sourceSessionKey?: string | null;
  sourceChannel?: string | null;
  sourceTool?: string | null;
}

/** Start, fallback, end or error of a run. */
export interface LifecycleData {
  phase: 'start' | 'fallback' | 'end' | 'error';
  startedAt?: number;
  endedAt?: number;
  thinkingLevel?: string;
  aborted?: boolean;
  error?: string;
  attempts?: Record<string, unknown>[];
  provider?: string;
  model?: string;
  reason?: string;
  next?: string;
  waitMs?: number;
}

/** `agent` with stream `lifecycle`. */
export interface LifecycleEvent {
  runId: string;
  seq: number;
  ts: number;
  sessionKey: string;
  stream: 'lifecycle';
  data: LifecycleData;
}

/** A file that the message names; an image is loaded with `chat.message.get` and `media`. */
export interface MediaPart {
  type: 'media';
  path: string;
}

/** Why a node did not do a command. */
export interface NodeErrorParams {
  code?: string | null;
  message?: string | null;
}

/** A schedule as jobs have it; `id` is the job's, which delays jobs of a full hour. */
export interface PreviewedSchedule {
  id?: string;
  schedule: Record<string, unknown>;
}

/** The answers by the ids of questions; the question of a record has the id `answer`. */
export interface QuestionAnswers {
  answers: Record<string, string[]>;
}

/** `question.requested`: a question of an agent. */
export interface QuestionPayload {
  id: string;
  questions: Record<string, unknown>[];
  agentId?: string | null;
  sessionKey?: string | null;
  createdAtMs: number;
  expiresAtMs: number;
  status?: string;
}

/** `question.resolved`: a question was answered, dismissed, or expired. */
export interface QuestionResolvedPayload {
  id: string;
  status?: string;
  answers?: Record<string, unknown> | null;
}

/** `session.message`: a message was added to a transcript. */
export interface SessionMessage {
  sessionKey: string;
  agentId: string;
  message: Record<string, unknown>;
  messageId: string;
  messageSeq: number;
  session: Record<string, unknown> | null;
}

/** `sessions.changed`: a session has a new state; `session` is its row, null when deleted. */
export interface SessionsChanged {
  sessionKey: string;
  agentId: string;
  ts: number;
  session: Record<string, unknown> | null;
  phase?: string;
  reason?: string;
  runId?: string;
}

/** `shutdown`: the gateway stops. */
export interface ShutdownPayload {
  reason: string;
  restartExpectedMs?: number | null;
}

/** Text or reasoning: the complete text so far, and what is new. */
export interface TextData {
  text: string;
  delta: string;
  mediaUrls?: string[];
}

/** `agent` with stream `assistant` or `thinking`. */
export interface TextEvent {
  runId: string;
  seq: number;
  ts: number;
  sessionKey: string;
  stream: 'assistant' | 'thinking';
  data: TextData;
}

/** Text of a message. */
export interface TextPart {
  type: 'text';
  text: string;
}

/** Reasoning of a model. */
export interface ThinkingPart {
  type: 'thinking';
  thinking: string;
}

/** `tick`: the connection is alive. */
export interface TickPayload {
  ts: number;
}

/** A tool call of the model. */
export interface ToolCallPart {
  type: 'toolCall';
  id: string;
  name: string;
  arguments: Record<string, unknown>;
}

/** One phase of a tool call. */
export interface ToolData {
  phase: 'start' | 'update' | 'result';
  name: string;
  toolCallId: string;
  args?: Record<string, unknown>;
  partialResult?: ToolOutputPayload;
  result?: ToolOutputPayload;
  isError?: boolean;
  meta?: string;
}

/** `agent` with stream `tool`. */
export interface ToolEvent {
  runId: string;
  seq: number;
  ts: number;
  sessionKey: string;
  stream: 'tool';
  data: ToolData;
}

/** What a tool returned, or has returned so far. */
export interface ToolOutputPayload {
  content: TextPart[];
  details?: Record<string, unknown>;
}

/** The answer to one step; a step that only shows something has no value. */
export interface WizardAnswerParams {
  stepId: string;
  value?: unknown;
}

/** The params of each method. */
export interface MethodParams {
  /** Run an agent on a message. Answered twice: when it is accepted, and with the result. */
  'agent': { message: string; agentId?: string | null; to?: string | null; replyTo?: string | null; sessionId?: string | null; sessionKey?: string | null; thinking?: string | null; model?: string | null; deliver?: boolean | null; attachments?: unknown[] | null; channel?: string | null; replyChannel?: string | null; accountId?: string | null; replyAccountId?: string | null; threadId?: string | null; groupId?: string | null; groupChannel?: string | null; groupSpace?: string | null; timeout?: number | null; lane?: string | null; extraSystemPrompt?: string | null; inputProvenance?: InputProvenanceParams | null; idempotencyKey: string; label?: string | null; spawnedBy?: string | null; };
  /** How an agent presents itself: name, avatar, emoji. */
  'agent.identity.get': { agentId?: string | null; sessionKey?: string | null; };
  /** Wait for a run to end; `timeout` when it has not, or was stopped. */
  'agent.wait': { runId: string; timeoutMs?: number; };
  /** Make an agent with a workspace of its own. */
  'agents.create': { name: string; workspace: string; emoji?: string | null; avatar?: string | null; };
  /** Remove an agent. Its files go to `trash` in the state directory; sessions are put aside. */
  'agents.delete': { agentId: string; deleteFiles?: boolean; };
  /** One of those files, with its text. */
  'agents.files.get': { agentId: string; name: string; };
  /** The files that make an agent who it is. */
  'agents.files.list': { agentId: string; };
  /** What a prompt of the agent's main session includes of its files. Ours. `kept` is the text that remains of the file that is named. A small model gets less. */
  'agents.files.preview': { agentId: string; name?: string | null; content?: string | null; };
  /** Replace one of those files, whole or not at all. */
  'agents.files.set': { agentId: string; name: string; content: string; };
  /** Every agent, and which one answers when none is named. */
  'agents.list': Record<string, never>;
  /** Change an agent's name, workspace, model or avatar. */
  'agents.update': { agentId: string; name?: string | null; workspace?: string | null; model?: string | null; avatar?: string | null; };
  /** Rows of the audit log, the newest first. Ours. `nextBeforeSeq` is the `beforeSeq` of the next page; null on the last one. */
  'audit.list': { sinceMs?: number | null; agentId?: string | null; tool?: string | null; kind?: 'decision' | 'approval' | 'execution' | 'config' | null; beforeSeq?: number | null; limit?: number; };
  /** Check that no row of the audit log was changed, removed or moved. Ours. `seq` and `hash` are those of the last row that is in order. */
  'audit.verify': Record<string, never>;
  /** Use the browser of an agent: tabs, pages, snapshots, cookies and storage. */
  'browser.request': { method: 'GET' | 'POST' | 'DELETE'; path: string; query?: Record<string, unknown> | null; body?: Record<string, unknown> | null; timeoutMs?: number | null; agentId?: string | null; };
  /** Stop an account and forget the login it keeps; it signs in anew when it is next begun. */
  'channels.logout': { channel: string; accountId?: string | null; };
  /** Let somebody in by their code: from their next message on they are heard. */
  'channels.pairing.approve': { channel: string; code: string; accountId?: string | null; };
  /** Send somebody away by their code; they may ask again. */
  'channels.pairing.dismiss': { channel: string; code: string; accountId?: string | null; };
  /** People who wait for approval, with their codes; the oldest first. */
  'channels.pairing.list': { channel?: string | null; accountId?: string | null; };
  /** Start an account again, also one that was stopped or whose login failed. */
  'channels.start': { channel: string; accountId?: string | null; };
  /** Every channel of the config and how its accounts are; with `probe` the services are asked. */
  'channels.status': { probe?: boolean; timeoutMs?: number | null; };
  /** Stop a session's runs, or one of them. What was said so far stays. */
  'chat.abort': { sessionKey: string; agentId?: string | null; runId?: string | null; preserveSideRuns?: boolean; };
  /** Return the newest messages of a session; events of the active run so far follow. */
  'chat.history': { sessionKey: string; agentId?: string | null; limit?: number; maxChars?: number | null; before?: string | null; };
  /** Add a note to a session as if the agent had said it; no model is asked. */
  'chat.inject': { sessionKey: string; message: string; label?: string | null; };
  /** Return a message whose text `chat.history` has cut, or one of its images. */
  'chat.message.get': { sessionKey: string; agentId?: string | null; messageId: string; maxChars?: number; index?: number | null; media?: string | null; };
  /** Send a message. Answered at once; the reply comes in `chat` events of the same run. */
  'chat.send': { sessionKey: string; agentId?: string | null; sessionId?: string | null; message: string; thinking?: string | null; deliver?: boolean | null; attachments?: unknown[] | null; timeoutMs?: number | null; idempotencyKey: string; };
  /** The chat commands that a message may contain, as `/commands` names them. */
  'commands.list': { sessionKey?: string | null; agentId?: string | null; provider?: string | null; scope?: 'text' | 'native' | 'both'; includeArgs?: boolean; };
  /** Replace the config and bring it into use. */
  'config.apply': { raw: string; baseHash?: string | null; sessionKey?: string | null; note?: string | null; restartDelayMs?: number | null; };
  /** The config file: as written, with includes resolved, and with defaults. No secrets. */
  'config.get': Record<string, never>;
  /** Merge a patch into the config: null removes, lists of objects merge by id. */
  'config.patch': { raw: string; baseHash?: string | null; sessionKey?: string | null; note?: string | null; restartDelayMs?: number | null; };
  /** The JSON Schema of the settings that have an effect, and which of them are secret. */
  'config.schema': Record<string, never>;
  /** Replace the config, if it is still the one the client saw. */
  'config.set': { raw: string; baseHash?: string | null; };
  /** Check a config without writing it: what is wrong with it, or what it would change. Ours. `action` says whether the change would be applied at once or restart the gateway; `isStale` that the file is no longer the one with `baseHash`. */
  'config.validate': { raw: string; baseHash?: string | null; };
  /** Add a job. */
  'cron.add': { name?: string | null; displayName?: string | null; agentId?: string | null; sessionKey?: string | null; description?: string | null; enabled?: boolean | null; deleteAfterRun?: boolean | null; schedule: Record<string, unknown>; sessionTarget?: string | null; wakeMode?: string | null; payload: Record<string, unknown>; delivery?: Record<string, unknown> | null; misfire?: Record<string, unknown> | null; };
  /** One job. From 2026.9. */
  'cron.get': { id?: string | null; jobId?: string | null; };
  /** The jobs of the program itself, such as session maintenance. Ours. */
  'cron.internal': Record<string, never>;
  /** The jobs; disabled ones with `includeDisabled`. */
  'cron.list': { includeDisabled?: boolean; limit?: number | null; offset?: number; query?: string; enabled?: 'all' | 'enabled' | 'disabled' | null; scheduleKind?: 'all' | 'at' | 'every' | 'cron' | 'on-exit' | 'stream'; lastRunStatus?: 'all' | 'ok' | 'error' | 'skipped' | 'unknown'; trigger?: 'all' | 'conditional' | 'unconditional'; sortBy?: 'nextRunAtMs' | 'updatedAtMs' | 'name' | null; sortDir?: 'asc' | 'desc'; agentId?: string | null; compact?: boolean; includeDeliveryPreviews?: boolean; };
  /** The times of schedules in a period, also of schedules that no job has. Ours. A schedule that cannot run has an `error`, and `truncated` says that it has more times. */
  'cron.preview': { schedules: PreviewedSchedule[]; fromMs: number; toMs: number; limit?: number; tz?: string | null; };
  /** Remove a job; `removed` is false if there was none. */
  'cron.remove': { id?: string | null; jobId?: string | null; };
  /** Run a job now. The answer comes when the run has started. */
  'cron.run': { id?: string | null; jobId?: string | null; mode?: 'due' | 'force' | 'if-enabled'; };
  /** The runs of a job that have ended, and the times it was skipped; newest last. Clients of protocol 4 get the newest first, as in 2026.9. */
  'cron.runs': { id?: string | null; jobId?: string | null; scope?: 'job' | 'all'; agentId?: string | null; runId?: string | null; limit?: number; offset?: number; statuses?: ('ok' | 'error' | 'skipped')[] | null; status?: 'all' | 'ok' | 'error' | 'skipped'; query?: string; sortDir?: 'asc' | 'desc' | null; };
  /** Whether jobs run, how many there are, and when the next one is due. */
  'cron.status': Record<string, never>;
  /** Change fields of a job. */
  'cron.update': { id?: string | null; jobId?: string | null; patch: Record<string, unknown>; expectedConfigRevision?: string | null; };
  /** Let a device in. Nobody can give it more than they may themselves. */
  'device.pair.approve': { requestId: string; };
  /** Devices that wait for an approval, and those that have one. No tokens are shown. */
  'device.pair.list': Record<string, never>;
  /** Send a device away. */
  'device.pair.reject': { requestId: string; };
  /** Forget a device that may do no more than the caller, or the caller's own. Its connections are closed at once, and it must be paired as a new one. */
  'device.pair.remove': { deviceId: string; };
  /** Void the token of a device that may do no more than the caller, or of the caller's own. Its connections are closed at once. */
  'device.token.revoke': { deviceId: string; role: string; };
  /** Give a device a new token. The old one is void at once; who came in by it is out. The device may do no more than the caller, or is the caller's own. */
  'device.token.rotate': { deviceId: string; role: string; scopes?: string[] | null; };
  /** Return approvals and questions that were answered, expired or cancelled, newest first. */
  'exec.approval.history': { limit?: number; sessionKey?: string | null; };
  /** The approvals that can be answered now, oldest first. */
  'exec.approval.list': Record<string, never>;
  /** Ask people to approve a command; answered with the decision, null after the timeout. With `twoPhase`, a first response has the id. */
  'exec.approval.request': { id?: string | null; command: string; cwd?: string | null; host?: string | null; security?: string | null; ask?: string | null; agentId?: string | null; resolvedPath?: string | null; sessionKey?: string | null; timeoutMs?: number; twoPhase?: boolean; };
  /** Answer an approval. The first answer counts; a later one is told whose that was. */
  'exec.approval.resolve': { id: string; decision: string; };
  /** Wait for the decision of an approval; one that was resolved is answered at once. */
  'exec.approval.waitDecision': { id: string; };
  /** The rules for commands, with the hash that a change must name. The token is not shown. */
  'exec.approvals.get': Record<string, never>;
  /** Replace the rules for commands, unless they have changed since they were read. */
  'exec.approvals.set': { file: Record<string, unknown>; baseHash?: string | null; };
  /** How things are: sessions, agents, channels. At most a minute old, fresh with `probe`. */
  'health': { probe?: boolean; };
  /** Give up a parked message, or an unknown or dead parcel, for good. Ours. */
  'inbox.discard': { id: string; };
  /** Messages that wait, run or are parked, and parcels pending, unknown or dead. Ours. With `stuck`, only what will not move by itself: parked messages, unknown and dead parcels. */
  'inbox.list': { stuck?: boolean; limit?: number; };
  /** Have a parked message answered, or an unknown or dead parcel sent, now. Ours. An unknown parcel may have arrived: then its reader gets it twice. */
  'inbox.retry': { id: string; };
  /** The last heartbeat since the start, as its event had it; null if there was none. */
  'last-heartbeat': Record<string, never>;
  /** The newest lines of the log, or those after `cursor`. Secrets are blotted out. */
  'logs.tail': { cursor?: number | null; limit?: number; maxBytes?: number; };
  /** Our device, the known devices of others and how they are trusted, and unreadable messages. */
  'matrix.devices': { accountId?: string | null; userId?: string | null; };
  /** All room keys, as the text of an encrypted file that clients of Matrix can read. */
  'matrix.keys.export': { accountId?: string | null; passphrase: string; };
  /** Add the room keys of a file that a client of Matrix exported. */
  'matrix.keys.import': { accountId?: string | null; passphrase: string; text: string; };
  /** Verify a device by its fingerprint, block it, or take either back. */
  'matrix.trust': { accountId?: string | null; userId: string; deviceId: string; trust: 'verified' | 'blocked' | 'unverified'; fingerprint?: string | null; };
  /** Verify a device by comparing short strings, step by step. */
  'matrix.verify': { accountId?: string | null; step: 'begin' | 'pending' | 'show' | 'accept' | 'confirm' | 'cancel'; id?: string | null; userId?: string | null; deviceId?: string | null; match?: boolean; };
  /** A note, or some lines of it, word for word. */
  'memory.get': { agentId?: string | null; path: string; from?: number | null; lines?: number | null; };
  /** Bring the index to what the files say. */
  'memory.index': { agentId?: string | null; force?: boolean; };
  /** The notes of an agent, those about a day first, newest first; and skipped files. Ours. */
  'memory.notes': { agentId?: string | null; limit?: number; };
  /** Lines or passages that answer a question, with where they stand, best first. */
  'memory.search': { agentId?: string | null; query: string; mode?: 'lines' | 'passages'; maxResults?: number | null; minScore?: number | null; maxChars?: number | null; };
  /** What is indexed, by what, and whether it is up to date. */
  'memory.status': { agentId?: string | null; };
  /** Add to a note what does not stand there yet. */
  'memory.write': { agentId?: string | null; text: string; path?: string | null; };
  /** React to, change and delete messages; read and search a chat; pins, threads and members. `resolve` only returns the address that a target names. A repeated key gets the first answer. */
  'message.action': { action: 'ban' | 'channel-info' | 'channel-list' | 'kick' | 'member-info' | 'permissions' | 'pin' | 'pins' | 'reactions' | 'read' | 'role-add' | 'role-info' | 'role-remove' | 'search' | 'sticker-send' | 'thread-create' | 'thread-list' | 'timeout' | 'unpin' | 'resolve' | 'react' | 'edit' | 'delete'; channel?: string | null; accountId?: string | null; params?: Record<string, unknown>; idempotencyKey: string; };
  /** Every model that is known and allowed here, by provider; with `details`, those usable. */
  'models.list': { details?: boolean; agentId?: string | null; sessionKey?: string | null; provider?: string | null; includeDetails?: boolean; view?: 'default' | 'configured' | 'provider-config' | 'all' | null; };
  /** Which model answers when nobody chose one, why, and what stands in its way. */
  'models.status': Record<string, never>;
  /** One node: what it is, and which commands it may be asked for. */
  'node.describe': { nodeId: string; };
  /** Have a node do a command and return its answer. */
  'node.invoke': { nodeId: string; command: string; params?: unknown; timeoutMs?: number | null; idempotencyKey: string; };
  /** Take a node's answer. Only the node that was asked may give it. */
  'node.invoke.result': { nodeId: string; id: string; ok: boolean; payload?: unknown; payloadJSON?: string | null; error?: NodeErrorParams | null; };
  /** Every paired node, and whether it is connected. */
  'node.list': Record<string, never>;
  /** Let a node in. */
  'node.pair.approve': { requestId: string; };
  /** The nodes that wait for an approval, and those that have one. */
  'node.pair.list': Record<string, never>;
  /** Send a node away. */
  'node.pair.reject': { requestId: string; };
  /** Give a node another name. */
  'node.rename': { nodeId: string; displayName: string; };
  /** What every layer of the policy says about a tool call, and which one decides. Ours. */
  'policy.explain': { sessionKey?: string | null; agentId?: string | null; channel?: string | null; sender?: string | null; tool: string; model?: string | null; args?: Record<string, unknown> | null; };
  /** What the policy says about a call of each tool, without its arguments. Ours. */
  'policy.list': { sessionKey?: string | null; agentId?: string | null; channel?: string | null; sender?: string | null; };
  /** Send a poll to a chat, once for one key, and wait a little for the service to take it. */
  'poll': { to: string; question: string; options: string[]; maxSelections?: number | null; durationSeconds?: number | null; durationHours?: number | null; silent?: boolean | null; isAnonymous?: boolean | null; threadId?: string | null; channel?: string | null; accountId?: string | null; idempotencyKey: string; };
  /** What a conversation's model is told first, with figures by section, file and tool. */
  'prompt.get': { sessionKey?: string | null; agentId?: string | null; text?: boolean; };
  /** The questions that wait for an answer, oldest first. */
  'question.list': Record<string, never>;
  /** Answer a question. The first answer counts; a later one is told whose that was. */
  'question.resolve': { id: string; answers?: QuestionAnswers | null; cancel?: true | null; resolvedBy?: string | null; resolutionId?: string | null; };
  /** The ten hops of a run with their timings. Secrets are blotted out. Ours. */
  'runs.trace': { id?: string; sessionKey?: string | null; };
  /** Send a message to a chat, and wait a little for the service to take it. The same key is sent once. What the service does not take at once is tried again later: `status` is then `queued`. Files are named by their paths in the workspace. With `sessionKey` the words are added to that session, as said by its agent. */
  'send': { to: string; message?: string | null; mediaUrl?: string | null; mediaUrls?: string[] | null; gifPlayback?: boolean | null; channel?: string | null; accountId?: string | null; threadId?: string | null; sessionKey?: string | null; replyToId?: string | null; silent?: boolean | null; idempotencyKey: string; };
  /** Create a session with the messages of another one up to `messageId`. Nothing is run. Ours. For a message of a person, `draft` is its text, and the new session ends before it. */
  'sessions.branch': { key: string; agentId?: string | null; messageId: string; label?: string | null; };
  /** Leave all but the newest entries out of what a model gets. The transcript keeps them. */
  'sessions.compact': { key: string; maxLines?: number; };
  /** Create a session, or return the one that has this key. Nothing is sent to a model. */
  'sessions.create': { key?: string | null; agentId?: string | null; label?: string | null; model?: string | null; thinkingLevel?: string | null; parentSessionKey?: string | null; succeedsParent?: boolean; emitCommandHooks?: boolean; };
  /** Forget a session. Its transcript is renamed, not removed; a main session stays. */
  'sessions.delete': { key: string; deleteTranscript?: boolean; };
  /** One session as a row of `sessions.list`, with its active runs; null when there is none. */
  'sessions.describe': { key: string; agentId?: string | null; includeDerivedTitles?: boolean; includeLastMessage?: boolean; };
  /** Sessions, the newest first. Without a limit, the newest 200. */
  'sessions.list': { limit?: number; activeMinutes?: number | null; includeGlobal?: boolean; includeUnknown?: boolean; includeDerivedTitles?: boolean; includeLastMessage?: boolean; label?: string | null; spawnedBy?: string | null; agentId?: string | null; search?: string; };
  /** Receive `session.message` events of one session until the connection ends. */
  'sessions.messages.subscribe': { key: string; agentId?: string | null; };
  /** End `sessions.messages.subscribe`. */
  'sessions.messages.unsubscribe': { key: string; agentId?: string | null; };
  /** Change settings of a session; one that was never used is made. */
  'sessions.patch': { key: string; label?: string | null; thinkingLevel?: string | null; verboseLevel?: string | null; reasoningLevel?: string | null; responseUsage?: 'off' | 'tokens' | 'full' | 'on' | null; elevatedLevel?: string | null; execHost?: string | null; execSecurity?: string | null; execAsk?: string | null; execNode?: string | null; model?: string | null; spawnedBy?: string | null; spawnDepth?: number | null; sendPolicy?: 'allow' | 'deny' | null; groupActivation?: 'mention' | 'always' | null; };
  /** The last few messages of some sessions, each cut short. At most 64 sessions. */
  'sessions.preview': { keys: string[]; limit?: number; maxChars?: number; };
  /** Stop what a session does and begin a new transcript; the old one is put aside. */
  'sessions.reset': { key: string; reason?: 'new' | 'reset'; };
  /** The key of the session that is meant. */
  'sessions.resolve': { key?: string | null; sessionId?: string | null; label?: string | null; agentId?: string | null; spawnedBy?: string | null; includeGlobal?: boolean; includeUnknown?: boolean; };
  /** Receive `sessions.changed` and `session.message` events until the connection ends. */
  'sessions.subscribe': Record<string, never>;
  /** End `sessions.subscribe`. */
  'sessions.unsubscribe': Record<string, never>;
  /** What sessions cost, each by day and model, and all together. The newest 50, or `limit`. */
  'sessions.usage': { key?: string | null; startDate?: string | null; endDate?: string | null; days?: number | null; limit?: number; includeContextWeight?: boolean; };
  /** The messages of a session, oldest first, each with its tokens and cost. */
  'sessions.usage.logs': { key: string; limit?: number; };
  /** Tokens and cost of a session over time, with running totals. At most 200 points. */
  'sessions.usage.timeseries': { key: string; };
  /** Switch the heartbeats of all agents on or off; it holds across restarts. */
  'set-heartbeats': { enabled: boolean; };
  /** Install a skill of the registry, if it is still what `skills.detail` showed. Ours. */
  'skills.add': { slug: string; version?: string | null; fingerprint: string; agentId?: string | null; managed?: boolean; acceptWarnings?: boolean; };
  /** The programs that the skills of all agents use, for a node; operators may not ask. */
  'skills.bins': Record<string, never>;
  /** What a skill of the registry asks for and contains. It is checked, and not installed. */
  'skills.detail': { slug: string; version?: string | null; };
  /** Install a program for a skill; answered after the approval and the install. */
  'skills.install': { name: string; installId: string; timeoutMs?: number | null; agentId?: string | null; };
  /** Search the registry for skills. */
  'skills.search': { query: string; limit?: number; };
  /** The skills of an agent: which can be used, and what the others lack. */
  'skills.status': { agentId?: string | null; };
  /** Change the settings of a skill in the config, and bring them into use. */
  'skills.update': { skillKey: string; enabled?: boolean | null; apiKey?: string | null; env?: Record<string, string> | null; };
  /** Sessions, heartbeats, jobs, notices, lanes, sandboxes, and what is not built. Paths are for admins. A sandbox that was not measured yet has no level. */
  'status': Record<string, never>;
  /** Everything that is known of a sub-agent, as fields and as text. Ours. */
  'subagents.info': { target: string; sessionKey?: string | null; };
  /** Stop a sub-agent and those that it started, or `all`. Ours. */
  'subagents.kill': { target: string; sessionKey?: string | null; };
  /** The active sub-agents, and those that ended lately, numbered. Ours. */
  'subagents.list': { sessionKey?: string | null; recentMinutes?: number; };
  /** The newest messages of a sub-agent. Ours. */
  'subagents.log': { target: string; sessionKey?: string | null; limit?: number; tools?: boolean; };
  /** Ask a sub-agent something, also one that has ended, and wait for its answer. Ours. */
  'subagents.send': { target: string; sessionKey?: string | null; message: string; idempotencyKey?: string | null; timeoutSeconds?: number; };
  /** Have an active sub-agent go on with a message. Ours. */
  'subagents.steer': { target: string; sessionKey?: string | null; message: string; idempotencyKey?: string | null; };
  /** Tell of a device (`Node: …`), which is then listed, or leave a notice for the agent. */
  'system-event': { text: string; deviceId?: string | null; instanceId?: string | null; host?: string | null; ip?: string | null; mode?: string | null; version?: string | null; platform?: string | null; deviceFamily?: string | null; modelIdentifier?: string | null; lastInputSeconds?: number | null; reason?: string | null; roles?: string[] | null; scopes?: string[] | null; tags?: string[] | null; };
  /** Who is connected, or was a moment ago. */
  'system-presence': Record<string, never>;
  /** Tokens and dollars by day, of every call of a model. Without dates, of the last 31 days. */
  'usage.cost': { startDate?: string | null; endDate?: string | null; days?: number | null; };
  /** The spend limits and what today's calls cost; no provider tells how much quota is left. `usedUsd` includes what is reserved for calls in progress; it is null without a daily limit. */
  'usage.status': Record<string, never>;
  /** Tokens, cost and calls of models, by day, agent, session, channel, purpose or model. */
  'usage.totals': { startDate?: string | null; endDate?: string | null; days?: number | null; by?: ('day' | 'agent' | 'session' | 'channel' | 'purpose' | 'provider' | 'model')[]; agentId?: string | null; key?: string | null; };
  /** Leave a notice for the main session; with `now`, a heartbeat takes it up at once. `delayedBy`, which OpenClaw does not have, says why no heartbeat takes it up now. */
  'wake': { mode: 'now' | 'next-heartbeat'; text: string; };
  /** End a wizard; what it wrote stays. */
  'wizard.cancel': { sessionId: string; };
  /** Answer the current step of a wizard and return the next one. */
  'wizard.next': { sessionId: string; answer?: WizardAnswerParams | null; };
  /** Start the onboarding wizard and return its first step. */
  'wizard.start': { mode?: 'local' | 'remote' | null; workspace?: string | null; };
  /** The status of a wizard, and why it failed. */
  'wizard.status': { sessionId: string; };
  'exec.approvals.node.get': Record<string, unknown>;
  'exec.approvals.node.set': Record<string, unknown>;
  'node.event': Record<string, unknown>;
  'node.pair.request': Record<string, unknown>;
  'node.pair.verify': Record<string, unknown>;
  'talk.config': Record<string, unknown>;
  'talk.mode': Record<string, unknown>;
  'tts.convert': Record<string, unknown>;
  'tts.disable': Record<string, unknown>;
  'tts.enable': Record<string, unknown>;
  'tts.providers': Record<string, unknown>;
  'tts.setProvider': Record<string, unknown>;
  'tts.status': Record<string, unknown>;
  'update.run': Record<string, unknown>;
  'voicewake.get': Record<string, unknown>;
  'voicewake.set': Record<string, unknown>;
  'web.login.start': Record<string, unknown>;
  'web.login.wait': Record<string, unknown>;
}

export type MethodName = keyof MethodParams;

/** The scope that each method needs. */
export const METHOD_SCOPES = {
  'agent': 'write',
  'agent.identity.get': 'read',
  'agent.wait': 'write',
  'agents.create': 'admin',
  'agents.delete': 'admin',
  'agents.files.get': 'admin',
  'agents.files.list': 'admin',
  'agents.files.preview': 'admin',
  'agents.files.set': 'admin',
  'agents.list': 'read',
  'agents.update': 'admin',
  'audit.list': 'admin',
  'audit.verify': 'admin',
  'browser.request': 'write',
  'channels.logout': 'admin',
  'channels.pairing.approve': 'pairing',
  'channels.pairing.dismiss': 'pairing',
  'channels.pairing.list': 'pairing',
  'channels.start': 'admin',
  'channels.status': 'read',
  'chat.abort': 'write',
  'chat.history': 'read',
  'chat.inject': 'admin',
  'chat.message.get': 'read',
  'chat.send': 'write',
  'commands.list': 'read',
  'config.apply': 'admin',
  'config.get': 'read',
  'config.patch': 'admin',
  'config.schema': 'admin',
  'config.set': 'admin',
  'config.validate': 'admin',
  'cron.add': 'admin',
  'cron.get': 'read',
  'cron.internal': 'read',
  'cron.list': 'read',
  'cron.preview': 'read',
  'cron.remove': 'admin',
  'cron.run': 'admin',
  'cron.runs': 'read',
  'cron.status': 'read',
  'cron.update': 'admin',
  'device.pair.approve': 'pairing',
  'device.pair.list': 'pairing',
  'device.pair.reject': 'pairing',
  'device.pair.remove': 'pairing',
  'device.token.revoke': 'pairing',
  'device.token.rotate': 'pairing',
  'exec.approval.history': 'approvals',
  'exec.approval.list': 'approvals',
  'exec.approval.request': 'approvals',
  'exec.approval.resolve': 'approvals',
  'exec.approval.waitDecision': 'approvals',
  'exec.approvals.get': 'admin',
  'exec.approvals.set': 'admin',
  'health': 'read',
  'inbox.discard': 'admin',
  'inbox.list': 'read',
  'inbox.retry': 'write',
  'last-heartbeat': 'read',
  'logs.tail': 'read',
  'matrix.devices': 'admin',
  'matrix.keys.export': 'admin',
  'matrix.keys.import': 'admin',
  'matrix.trust': 'admin',
  'matrix.verify': 'admin',
  'memory.get': 'write',
  'memory.index': 'admin',
  'memory.notes': 'write',
  'memory.search': 'write',
  'memory.status': 'read',
  'memory.write': 'write',
  'message.action': 'write',
  'models.list': 'read',
  'models.status': 'admin',
  'node.describe': 'read',
  'node.invoke': 'write',
  'node.invoke.result': 'none',
  'node.list': 'read',
  'node.pair.approve': 'pairing',
  'node.pair.list': 'pairing',
  'node.pair.reject': 'pairing',
  'node.rename': 'pairing',
  'policy.explain': 'admin',
  'policy.list': 'admin',
  'poll': 'admin',
  'prompt.get': 'admin',
  'question.list': 'approvals',
  'question.resolve': 'approvals',
  'runs.trace': 'read',
  'send': 'write',
  'sessions.branch': 'write',
  'sessions.compact': 'admin',
  'sessions.create': 'write',
  'sessions.delete': 'admin',
  'sessions.describe': 'read',
  'sessions.list': 'read',
  'sessions.messages.subscribe': 'read',
  'sessions.messages.unsubscribe': 'read',
  'sessions.patch': 'admin',
  'sessions.preview': 'read',
  'sessions.reset': 'admin',
  'sessions.resolve': 'admin',
  'sessions.subscribe': 'read',
  'sessions.unsubscribe': 'read',
  'sessions.usage': 'admin',
  'sessions.usage.logs': 'admin',
  'sessions.usage.timeseries': 'admin',
  'set-heartbeats': 'admin',
  'skills.add': 'admin',
  'skills.bins': 'none',
  'skills.detail': 'admin',
  'skills.install': 'admin',
  'skills.search': 'admin',
  'skills.status': 'read',
  'skills.update': 'admin',
  'status': 'read',
  'subagents.info': 'read',
  'subagents.kill': 'write',
  'subagents.list': 'read',
  'subagents.log': 'read',
  'subagents.send': 'write',
  'subagents.steer': 'write',
  'system-event': 'admin',
  'system-presence': 'read',
  'usage.cost': 'read',
  'usage.status': 'read',
  'usage.totals': 'read',
  'wake': 'write',
  'wizard.cancel': 'admin',
  'wizard.next': 'admin',
  'wizard.start': 'admin',
  'wizard.status': 'admin',
  'exec.approvals.node.get': 'none',
  'exec.approvals.node.set': 'none',
  'node.event': 'none',
  'node.pair.request': 'none',
  'node.pair.verify': 'none',
  'talk.config': 'none',
  'talk.mode': 'none',
  'tts.convert': 'none',
  'tts.disable': 'none',
  'tts.enable': 'none',
  'tts.providers': 'none',
  'tts.setProvider': 'none',
  'tts.status': 'none',
  'update.run': 'none',
  'voicewake.get': 'none',
  'voicewake.set': 'none',
  'web.login.start': 'none',
  'web.login.wait': 'none',
} as const satisfies Record<MethodName, string>;

/** The payload of each event. */
export interface EventPayloads {
  'agent': LifecycleEvent | TextEvent | ToolEvent | CompactionEvent | ErrorEvent;
  'chat': ChatEvent;
  'config.rejected': Record<string, unknown>;
  'config.reloaded': Record<string, unknown>;
  'connect.challenge': Record<string, unknown>;
  'cron': CronEvent;
  'device.pair.requested': DevicePairRequested;
  'device.pair.resolved': DevicePairResolved;
  'exec.approval.requested': ApprovalPayload;
  'exec.approval.resolved': ApprovalResolvedPayload;
  'gap': Record<string, unknown>;
  'health': Record<string, unknown>;
  'presence': Record<string, unknown>;
  'question.requested': QuestionPayload;
  'question.resolved': QuestionResolvedPayload;
  'session.message': SessionMessage;
  'sessions.changed': SessionsChanged;
  'shutdown': ShutdownPayload;
  'tick': TickPayload;
}

export type EventName = keyof EventPayloads;
