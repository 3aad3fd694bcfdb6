/** A failed answer can be asked for again: which message that is, and sending it as a new one. */

import { randomId } from '../../gateway/device';
import type { LiveRun } from './liveRun';
import { discard, enqueue, type Outgoing } from './outbox';
import type { Turn } from './turns';

export type Retry = Pick<Outgoing, 'text' | 'attachments'> & { /** The copy that the page still has, or ''. */ runId: string };

/**
 * Return the message whose answer failed, if nothing came after it. What another channel sent, and files
 * that this page no longer has, cannot be sent again from here.
 */
export function findRetry(turns: readonly Turn[], runs: readonly LiveRun[], unsent: readonly Outgoing[]): Retry | null {
  const failed = runs.at(-1);
  if (runs.some(({ state }) => state !== 'failed')) return null;
  const sent = unsent[0];
  if (sent) {
    const { runId, text, attachments } = sent;
    return unsent.length === 1 && failed?.runId === runId && sent.state === 'sent' ? { runId, text, attachments } : null;
  }
  const last = turns.at(-1);
  const isStored = last?.kind === 'answer';
  if (isStored ? !last.isError : !failed) return null;
  const asked = turns.at(isStored ? -2 : -1);
  if (asked?.kind !== 'question' || !asked.text || asked.source || asked.files.length || asked.images.length) return null;
  return { runId: '', text: asked.text, attachments: [] };
}

/** Send it with a key of its own: the failed run was reported, so the gateway answers the other one only. */
export function retry({ runId, text, attachments }: Retry, sessionKey: string): void {
  if (runId) discard(runId);
  enqueue({ runId: randomId(), sessionKey, text, attachments });
}
