/** The conversations, newest first, kept up to date by events. */

import { signal } from '@preact/signals';
import { call, hello, onEvent, onOpen } from '../gateway/gateway';
import { oneLine } from '../markdown/text';
import type { SessionRow } from '../protocol/results';

export const sessions = signal<readonly SessionRow[]>([]);
/** The model of the default agent's new conversations; '' when it is not known. */
export const defaultModel = signal('');
export const isSessionsLoaded = signal(false);
/** Whether there may be older conversations than those that are loaded: a search finds them. */
export const hasOlderSessions = signal(false);
export const sessionsError = signal<unknown>(null);

const LIMIT = 200;
const REFRESH_MS = 400;
const TEXTS = { includeDerivedTitles: true, includeLastMessage: false, includeGlobal: true };
let timer: ReturnType<typeof setTimeout> | undefined;
let loads = 0;
let loaded = 0; // the newest load that was answered

/** Follow the list; called once at the start. */
export function startSessions(): void {
  onOpen(() => {
    void loadSessions();
    call('sessions.subscribe', {}).catch(() => undefined); // the list is loaded all the same
  });
  onEvent('sessions.changed', () => refreshSoon());
  onEvent('session.message', () => refreshSoon());
}

export async function loadSessions(): Promise<void> {
  const turn = ++loads;
  try {
    const { sessions: found, defaults } = await call('sessions.list', { limit: LIMIT, ...TEXTS });
    if (turn < loaded) return; // a newer answer came first
    loaded = turn;
    sessions.value = found;
    defaultModel.value = typeof defaults?.model === 'string' ? defaults.model : '';
    hasOlderSessions.value = found.length >= LIMIT;
    isSessionsLoaded.value = true;
    sessionsError.value = null;
  } catch (error) {
    if (turn > loaded) sessionsError.value = error;
  }
}

/** Return conversations of any age whose name or key has this text. */
export async function searchSessions(search: string): Promise<readonly SessionRow[]> {
  return (await call('sessions.list', { limit: LIMIT, ...TEXTS, search })).sessions;
}

export function mainSessionKey(): string {
  return hello.value?.snapshot.sessionDefaults?.mainSessionKey ?? 'agent:main:main';
}

export function defaultAgentId(): string {
  return hello.value?.snapshot.sessionDefaults?.defaultAgentId ?? 'main';
}

/** Return how people know a conversation. */
export function titleOf(row: SessionRow | undefined, key: string): string {
  const named = row?.label ?? row?.displayName ?? row?.derivedTitle;
  if (named) return oneLine(named, 80);
  if (key === mainSessionKey()) return 'Main';
  return isFresh(key) ? 'New conversation' : oneLine(key, 60);
}

/** Return where a conversation takes place, in short. */
export function placeOf(row: SessionRow): string {
  const agent = row.agentId ?? row.key.split(':')[1] ?? '';
  if (row.spawnedBy) return `sub-agent · ${agent}`;
  return row.channel && row.channel !== 'webchat' ? `${row.channel} · ${agent}` : agent;
}

/** Return the key of a conversation that does not exist yet. */
export function newSessionKey(agentId: string, random: string): string {
  return `agent:${agentId}:web-${random.slice(0, 12)}`;
}

function isFresh(key: string): boolean {
  return /:web-[0-9a-f]{12}$/.test(key);
}

function refreshSoon(): void {
  timer ??= setTimeout(() => {
    timer = undefined;
    void loadSessions();
  }, REFRESH_MS);
}
