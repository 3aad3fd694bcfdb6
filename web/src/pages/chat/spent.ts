/** What a conversation has cost: all of it, not only the messages that are loaded. */

import { signal } from '@preact/signals';
import { call, may } from '../../gateway/gateway';
import type { HistoryMessage } from '../../protocol/results';

export interface Spent {
  tokens: number;
  costUsd: number;
  /** The time of the last message that is counted. */
  untilMs: number;
}

const DAY_MS = 86_400_000;
const MAX_DAYS = 3_600; // that the gateway sums up

/** The figures of one session, as the gateway has summed them up. */
export class SessionSpent {
  readonly stored = signal<Spent | null>(null);
  #sessionId: string | undefined;

  /** Load the figures, unless those that are there are of this session. */
  async load(key: string, sessionId: string | undefined): Promise<void> {
    if (sessionId === undefined || this.#sessionId === sessionId || !may('admin')) return;
    this.#sessionId = sessionId;
    const startDate = new Date(Date.now() - MAX_DAYS * DAY_MS).toISOString().slice(0, 10);
    try {
      const { sessions } = await call('sessions.usage', { key, startDate, limit: 1 });
      const usage = sessions[0]?.usage;
      this.stored.value = usage ? { tokens: usage.totalTokens, costUsd: usage.totalCost, untilMs: usage.lastActivity } : null;
    } catch {
      this.#sessionId = undefined; // the messages that are loaded are counted meanwhile
    }
  }

  /** Have the figures loaded again the next time: messages that they lack are no longer here. */
  expire(): void {
    this.#sessionId = undefined;
  }
}

/** Add the messages that are newer than what is summed up; without that, all of them. */
export function addNewer(stored: Spent | null, messages: readonly HistoryMessage[]): Spent {
  const untilMs = stored?.untilMs ?? 0;
  const sum = { tokens: stored?.tokens ?? 0, costUsd: stored?.costUsd ?? 0, untilMs };
  for (const { usage, timestamp } of messages) {
    if (timestamp <= untilMs) continue;
    sum.tokens += usage?.totalTokens ?? 0;
    sum.costUsd += usage?.cost?.total ?? 0;
    sum.untilMs = Math.max(sum.untilMs, timestamp);
  }
  return sum;
}
