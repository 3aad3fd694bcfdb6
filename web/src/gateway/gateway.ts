/** The one connection of this page, and its state as signals. */

import { computed, signal } from '@preact/signals';
import type { EventName, EventPayloads, MethodName, MethodParams } from '../protocol/protocol.generated';
import type { Hello, ResultOf } from '../protocol/results';
import { setGatewayTime } from './clock';
import { GatewayClient } from './client';
import { getRequestedScopes, getSecret, saveDevice } from './credentials';
import type { RequestError } from './errors';

export type Connection =
  | { state: 'connecting' }
  | { state: 'open' }
  | { state: 'waiting'; untilMs: number; reason: string }
  | { state: 'refused'; error: RequestError };

type Listener<E extends EventName> = (payload: EventPayloads[E]) => void;

export const connection = signal<Connection>({ state: 'connecting' });
/** Why the gateway refuses this page; while a person is asked for a permission, also between the attempts. */
export const refusal = signal<RequestError | null>(null);
/** What the gateway said when the connection was made; stays while it is lost. */
export const hello = signal<Hello | null>(null);
export const isConnected = computed(() => connection.value.state === 'open');
export const scopes = computed<readonly string[]>(() => hello.value?.auth?.scopes ?? []);

const listeners = new Map<string, Set<Listener<never>>>();
const openListeners = new Set<() => void>();
const closeListeners = new Set<() => void>();

const client = new GatewayClient({
  getSecret,
  getScopes: getRequestedScopes,
  onTime: setGatewayTime,
  onOpen: (received) => {
    if (received.auth?.deviceToken) saveDevice(received.auth.deviceToken, getRequestedScopes());
    hello.value = received;
    refusal.value = null;
    connection.value = { state: 'open' };
    for (const listener of openListeners) listener();
  },
  onEvent: (event, payload) => {
    for (const listener of listeners.get(event) ?? []) listener(payload as never);
    if ((event as string) === 'gap') reload();
  },
  onGap: reload,
  onClose: () => {
    connection.value = { state: 'connecting' };
    for (const listener of closeListeners) listener();
  },
  onWaiting: (untilMs, reason) => {
    connection.value = { state: 'waiting', untilMs, reason };
    refusal.value = null;
  },
  onRefused: (error) => {
    refusal.value = error;
    connection.value = { state: 'refused', error };
  },
});

/** Send a request to the gateway; rejects with RequestError or NoAnswerError. */
export function call<M extends MethodName>(
  method: M,
  params: MethodParams[M],
  timeoutMs?: number,
): Promise<ResultOf<M>> {
  return client.call(method, params, timeoutMs);
}

/** Call a function for each event of a name; returns the function that ends this. */
export function onEvent<E extends EventName>(event: E, listener: Listener<E>): () => void {
  const found = listeners.get(event) ?? new Set();
  listeners.set(event, found);
  found.add(listener);
  return () => found.delete(listener);
}

/**
 * Call a function when what was loaded may be out of date: after each connection, and after events
 * were missed. It is called at once when the connection is open. Returns the function that ends this.
 */
export function onOpen(listener: () => void): () => void {
  openListeners.add(listener);
  if (isConnected.peek()) listener();
  return () => openListeners.delete(listener);
}

export function onClose(listener: () => void): () => void {
  closeListeners.add(listener);
  return () => closeListeners.delete(listener);
}

export function connect(): void {
  if (refusal.value?.code !== 'NOT_PAIRED') refusal.value = null;
  connection.value = { state: 'connecting' };
  client.connect();
}

/** Return whether this client may call methods of a scope. */
export function may(scope: 'read' | 'write' | 'admin' | 'approvals' | 'pairing'): boolean {
  const granted = scopes.value;
  if (granted.includes('operator.admin') || granted.includes(`operator.${scope}`)) return true;
  return scope === 'read' && granted.includes('operator.write');
}

function reload(): void {
  for (const listener of openListeners) listener();
}
