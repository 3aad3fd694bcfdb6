import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { formatCount, formatUsd } from '../../state/format';
import type { Conversation } from './conversation';
import { addNewer } from './spent';

/** What the conversation has cost so far. */
export function SpentBadge({ conversation }: { conversation: Conversation }): JSX.Element | null {
  const stored = conversation.spent.stored.value;
  const messages = conversation.messages.value;
  const { tokens, costUsd } = useMemo(() => addNewer(stored, messages), [stored, messages]);
  if (!tokens && !costUsd) return null;
  const of = stored ? 'this conversation' : 'the messages that are loaded';
  return (
    <Badge title={`Tokens and cost of ${of}`}>
      <span class="chat-tokens">
        {formatCount(tokens)} tokens{costUsd > 0 && ' · '}
      </span>
      {costUsd > 0 && <span>{formatUsd(costUsd)}</span>}
    </Badge>
  );
}
