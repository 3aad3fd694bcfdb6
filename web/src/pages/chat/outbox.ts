/**
 * Messages on their way to the gateway. Each keeps its idempotency key until the gateway has it, so
 * that one that is sent again after a lost connection is not accepted twice.
 */

import { signal } from '@preact/signals';
import { randomId } from '../../gateway/device';
import { describeError, RequestError } from '../../gateway/errors';
import { call, isConnected, onOpen } from '../../gateway/gateway';
import type { ResultOf } from '../../protocol/results';

export interface Attachment {
  name: string;
  mime: string;
  bytes: number;
  /** A `data:` URL. */
  url: string;
}

export interface Outgoing {
  runId: string;
  sessionKey: string;
  text: string;
  attachments: readonly Attachment[];
  /** `waiting` for the connection, being sent, accepted, or refused with `error`. */
  state: 'waiting' | 'sending' | 'sent' | 'refused';
  error: string;
  atMs: number;
}

type Sent = ResultOf<'chat.send'>;

const NAME = 'outbox';
const MAX_STORED_CHARS = 2_000_000; // of the browser's storage for a tab
const RESEND_MS = 3_000;

export const outgoing = signal<readonly Outgoing[]>(load());

const listeners = new Set<(entry: Outgoing, result: Sent) => void>();
let isSending = false;

onOpen(() => void sendWaiting());

/** Call a function when the gateway answered a message. Returns the function that ends this. */
export function onSent(listener: (entry: Outgoing, result: Sent) => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function enqueue(entry: Pick<Outgoing, 'runId' | 'sessionKey' | 'text' | 'attachments'>): void {
  store([...outgoing.value, { ...entry, state: 'waiting', error: '', atMs: Date.now() }]);
  void sendWaiting();
}

export function discard(runId: string): void {
  store(outgoing.value.filter((entry) => entry.runId !== runId));
}

/** The gateway had a message and dropped it: it is new when it is sent again. */
export function markDropped(runId: string, error: string): void {
  update(runId, { runId: randomId(), state: 'refused', error });
}

/** The gateway has told how it calls a conversation. */
export function renameOutgoing(sessionKey: string, storedKey: string): void {
  if (outgoing.value.some((entry) => entry.sessionKey === sessionKey))
    store(outgoing.value.map((entry) => (entry.sessionKey === sessionKey ? { ...entry, sessionKey: storedKey } : entry)));
}

/** Send a message again that the gateway refused, under the same key. */
export function sendAgain(runId: string): void {
  update(runId, { state: 'waiting', error: '' });
  void sendWaiting();
}

function update(runId: string, change: Partial<Outgoing>): void {
  store(outgoing.value.map((entry) => (entry.runId === runId ? { ...entry, ...change } : entry)));
}

/** Send what waits, one after another, so that the order stays. */
async function sendWaiting(): Promise<void> {
  if (isSending) return;
  isSending = true;
  try {
    for (let entry = next(); entry; entry = next()) if (!(await send(entry))) break;
  } finally {
    isSending = false;
  }
}

function next(): Outgoing | undefined {
  return isConnected.peek() ? outgoing.peek().find(({ state }) => state === 'waiting') : undefined;
}

/** Returns false when the message has to be sent again later. */
async function send(entry: Outgoing): Promise<boolean> {
  const { runId, sessionKey, text, attachments } = entry;
  update(runId, { state: 'sending' });
  const files = attachments.map(({ name, mime, url }) => ({ type: mime.startsWith('image/') ? 'image' : 'file', mimeType: mime, fileName: name, content: url }));
  try {
    const params = { sessionKey, message: text, idempotencyKey: runId, ...(files.length ? { attachments: files } : {}) };
    const result = await call('chat.send', params);
    update(runId, { state: 'sent' });
    for (const listener of listeners) listener(entry, result);
    return true;
  } catch (error) {
    if (error instanceof RequestError && !error.retryAfterMs) {
      update(runId, { state: 'refused', error: describeError(error) });
      return true;
    }
    update(runId, { state: 'waiting' });
    const waitMs = error instanceof RequestError ? error.retryAfterMs : RESEND_MS;
    if (isConnected.peek()) setTimeout(() => void sendWaiting(), waitMs);
    return false;
  }
}

function load(): Outgoing[] {
  try {
    const stored = JSON.parse(sessionStorage.getItem(NAME) ?? '[]') as Outgoing[];
    // One that was being sent may have arrived or not; it keeps its key, so it counts once.
    return stored.map((entry) => (entry.state === 'sending' ? { ...entry, state: 'waiting' } : entry));
  } catch {
    sessionStorage.removeItem(NAME);
    return [];
  }
}

function store(entries: readonly Outgoing[]): void {
  outgoing.value = entries;
  const text = JSON.stringify(entries);
  try {
    if (entries.length && text.length <= MAX_STORED_CHARS) sessionStorage.setItem(NAME, text);
    else sessionStorage.removeItem(NAME);
  } catch {
    sessionStorage.removeItem(NAME); // the storage is full: they last as long as the page
  }
}
