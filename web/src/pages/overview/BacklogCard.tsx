import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { Confirm } from '../../components/Confirm';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { call } from '../../gateway/gateway';
import type { Requested } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { BacklogRow } from '../../protocol/operation-results';
import type { MethodResults } from '../../protocol/results';
import { showToast } from '../../state/toasts';
import { BacklogItem } from './BacklogItem';
import { isStuck } from './problems';

const MAX_SHOWN = 20;

/** Messages without an answer and replies that are not delivered; those that need a person first. */
export function BacklogCard({ data, error, reload }: Requested<MethodResults['inbox.list']>): JSX.Element {
  const [discarding, setDiscarding] = useState<BacklogRow | null>(null);
  const rows = [...(data?.messages ?? []), ...(data?.parcels ?? [])];
  rows.sort((one, other) => Number(isStuck(other)) - Number(isStuck(one)) || one.at - other.at);
  const discard = async ({ id }: BacklogRow): Promise<void> => {
    await call('inbox.discard', { id });
    showToast({ tone: 'ok', text: 'Discarded' });
    reload();
  };
  return (
    <Card title="Inbox and outbox" aside={data && <Badge>{rows.length}</Badge>} class="wide">
      {error !== null && !data && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {data && !rows.length && <p class="soft small">Every message is answered and every reply delivered.</p>}
      {rows.length > 0 && (
        <ul class="backlog">
          {rows.slice(0, MAX_SHOWN).map((row) => (
            <BacklogItem key={row.id} row={row} onChanged={reload} onDiscard={() => setDiscarding(row)} />
          ))}
        </ul>
      )}
      {rows.length > MAX_SHOWN && (
        <p class="soft small">{rows.length - MAX_SHOWN} more: “homarus inbox” lists them.</p>
      )}
      {discarding && (
        <Confirm
          title="Discard for good?"
          verb="Discard"
          onConfirm={() => discard(discarding)}
          onClose={() => setDiscarding(null)}
        >
          <p>“{oneLine(discarding.preview, 120)}” is neither answered nor sent. This cannot be undone.</p>
        </Confirm>
      )}
    </Card>
  );
}
