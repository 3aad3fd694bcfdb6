/** What waits for a person: tool calls, questions of agents, and devices that want to connect. */

import { computed, signal } from '@preact/signals';
import { gatewayNow, setGatewayTime } from '../gateway/clock';
import { call, connection, may, onEvent, onOpen } from '../gateway/gateway';
import type { ApprovalPayload, DevicePairRequested, QuestionPayload } from '../protocol/protocol.generated';
import { announce } from './announce';
import { notify } from './notifications';

export type Decision = 'allow-once' | 'allow-always' | 'deny';
export type Pending =
  | { kind: 'approval'; id: string; approval: ApprovalPayload; expiresAtMs: number }
  | { kind: 'question'; id: string; question: QuestionPayload; expiresAtMs: number }
  | { kind: 'device'; id: string; device: DevicePairRequested; expiresAtMs: number };

const items = signal<ReadonlyMap<string, Pending>>(new Map());
/** Ids of what an event added or removed since the lists were requested: the event is newer. */
let changed = new Set<string>();

/** What waits for this person; nothing, once the gateway has refused this page. */
export const pending = computed(() => (connection.value.state === 'refused' ? [] : [...items.value.values()]));
/** Whether it is known what waits, and why it is not. */
export const isPendingLoaded = signal(false);
export const pendingError = signal<unknown>(null);
/** The ids of tool calls that wait for an approval. */
export const waitingCalls = computed(
  () => new Set(pending.value.flatMap((item) => (item.kind === 'approval' ? [item.approval.request.toolCallId] : []))),
);
/** Approvals that were resolved while this page was open: `Approvals` loads the others. */
export const resolvedCount = signal(0);

export function countPending(): number {
  return pending.value.length;
}

/** Follow what waits; called once at the start. */
export function startApprovals(): void {
  onOpen(() => void loadPending());
  onEvent('exec.approval.requested', (approval) => add(fromApproval(approval)));
  onEvent('question.requested', (question) => add(fromQuestion(question)));
  onEvent('device.pair.requested', (device) => add(fromDevice(device)));
  onEvent('device.pair.resolved', ({ requestId }) => remove(requestId));
  onEvent('exec.approval.resolved', ({ id }) => remove(id));
  onEvent('question.resolved', ({ id }) => remove(id));
  onEvent('tick', ({ ts }) => setGatewayTime(ts));
  setInterval(removeExpired, 1_000);
}

export async function decide(id: string, decision: Decision): Promise<void> {
  await call('exec.approval.resolve', { id, decision });
  remove(id);
}

/** Answer a question of an agent; without an answer it is dismissed. */
export async function answer(pendingId: string, questionId: string, text: string | null): Promise<void> {
  const outcome = text === null ? { cancel: true as const } : { answers: { answers: { [questionId]: [text] } } };
  await call('question.resolve', { id: pendingId, ...outcome });
  remove(pendingId);
}

/** Return the conversation that something waits in; '' for a device. */
export function sessionOf(item: Pending): string {
  if (item.kind === 'device') return '';
  const key = item.kind === 'approval' ? item.approval.request.sessionKey : item.question.sessionKey;
  return typeof key === 'string' ? key : '';
}

/** Load what waits. What is shown stays there until then, also while the connection is lost. */
export async function loadPending(): Promise<void> {
  changed = new Set();
  const lists: Promise<void>[] = [];
  if (may('approvals'))
    lists.push(
      call('exec.approval.list', {}).then((found) => replace('approval', found.map(fromApproval))),
      call('question.list', {}).then(({ questions }) => replace('question', questions.map(fromQuestion))),
    );
  if (may('pairing')) lists.push(call('device.pair.list', {}).then((found) => replace('device', found.pending.map(fromDevice))));
  const failed = (await Promise.allSettled(lists)).find((each) => each.status === 'rejected');
  pendingError.value = failed?.reason ?? null;
  isPendingLoaded.value = failed === undefined;
}

function replace(kind: Pending['kind'], found: readonly Pending[]): void {
  const kept = pending.peek().filter((item) => item.kind !== kind || changed.has(item.id));
  const loaded = found.filter(({ id }) => !changed.has(id));
  items.value = new Map([...kept, ...loaded].map((item) => [item.id, item]));
}

function fromApproval(approval: ApprovalPayload): Pending {
  return { kind: 'approval', id: approval.id, approval, expiresAtMs: approval.expiresAtMs };
}

function fromQuestion(question: QuestionPayload): Pending {
  return { kind: 'question', id: question.id, question, expiresAtMs: question.expiresAtMs };
}

function fromDevice(device: DevicePairRequested): Pending {
  return { kind: 'device', id: device.requestId, device, expiresAtMs: Number.POSITIVE_INFINITY };
}

const NOTICES = {
  approval: 'A tool call needs your approval.',
  question: 'The agent asks you a question.',
  device: 'A device wants to connect.',
};

function add(item: Pending): void {
  changed.add(item.id);
  if (items.value.has(item.id) || item.expiresAtMs <= gatewayNow()) return;
  items.value = new Map([...items.value, [item.id, item]]);
  announce(NOTICES[item.kind]);
  notify(NOTICES[item.kind], 'approvals', item.id);
}

function remove(id: string): void {
  changed.add(id);
  if (!items.value.has(id)) return;
  items.value = new Map([...items.value].filter(([key]) => key !== id));
  resolvedCount.value++;
}

function removeExpired(): void {
  const now = gatewayNow();
  for (const item of pending.peek()) if (item.expiresAtMs <= now) remove(item.id);
}
