import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge, type Tone } from '../../components/Badge';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { call, may } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { BacklogRow } from '../../protocol/operation-results';
import { formatAgo } from '../../state/format';
import { showToast } from '../../state/toasts';
import { isStuck } from './problems';

interface Props {
  row: BacklogRow;
  onChanged: () => void;
  onDiscard: () => void;
}

const STATES: Readonly<Record<string, readonly [words: string, tone: Tone]>> = {
  parked: ['set aside', 'bad'],
  dead: ['not delivered', 'bad'],
  unknown: ['delivery not confirmed', 'warn'],
  sending: ['sending', 'info'],
  pending: ['waits to be sent', 'neutral'],
};

/** One message or reply, and what a person can do about it. */
export function BacklogItem({ row, onChanged, onDiscard }: Props): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const [words, tone] = STATES[row.state] ?? [row.state, 'info'];
  const isReply = row.sessionKey === undefined;
  const retry = (): void => {
    setBusy(true);
    setError(null);
    call('inbox.retry', { id: row.id })
      .then(() => {
        showToast({ tone: 'ok', text: isReply ? 'The reply is sent again' : 'The message is answered now' });
        onChanged();
      }, setError)
      .finally(() => setBusy(false));
  };
  const place = [row.channel, oneLine(row.sender ?? row.chat ?? '', 60)].filter(Boolean).join(' · ');
  return (
    <li>
      <div class="backlog-text">
        <p class="clip">{oneLine(row.preview, 120) || '(no text)'}</p>
        <p class="soft tiny">
          <Badge tone={tone}>{words}</Badge> {isReply ? 'reply to' : 'message from'} {place} · {formatAgo(row.at)}
        </p>
        {row.why && <p class="soft tiny">{oneLine(row.why)}</p>}
        {row.state === 'unknown' && <p class="soft tiny">It may have arrived: sent again, it may arrive twice.</p>}
        {error !== null && <ErrorState error={error} />}
      </div>
      {isStuck(row) && (
        <div class="row">
          {may('write') && (
            <Button small isBusy={isBusy} onClick={retry}>
              {isReply ? 'Send again' : 'Answer now'}
            </Button>
          )}
          {may('admin') && (
            <Button small kind="quiet" icon="trash" label="Discard" onClick={onDiscard} />
          )}
        </div>
      )}
    </li>
  );
}
