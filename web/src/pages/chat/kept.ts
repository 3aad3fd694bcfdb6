import type { HistoryMessage } from '../../protocol/results';

// More messages than the second are too many to keep while the end is in view.
const KEPT_MESSAGES = 150;
export const MAX_MESSAGES = 250;

/** Return the newest messages, from a question on; all of them, if they are not too many. */
export function keepNewest(messages: readonly HistoryMessage[]): readonly HistoryMessage[] {
  if (messages.length <= MAX_MESSAGES) return messages;
  const from = messages.length - KEPT_MESSAGES;
  const asked = messages.findIndex(({ role }, at) => at >= from && role === 'user');
  return messages.slice(asked < 0 ? from : asked);
}
