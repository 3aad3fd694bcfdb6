import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { call, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { PairingRequest } from '../../protocol/agent-results';
import { formatAgo } from '../../state/format';
import { showToast } from '../../state/toasts';
import { useInterval } from '../../state/useInterval';

const REFRESH_MS = 10_000;

/** People who wrote to the agent and wait for an approval, with the codes that they were sent. */
export function PairingRequests(): JSX.Element | null {
  const { data, error, reload } = useRequest('channels.pairing.list', may('pairing') ? {} : null);
  const [busyId, setBusyId] = useState('');
  const [failure, setFailure] = useState<unknown>(null);
  useInterval(reload, REFRESH_MS);
  const decide = (request: PairingRequest, isApproved: boolean): void => {
    const { channel, code, accountId } = request;
    setBusyId(request.id);
    setFailure(null);
    call(isApproved ? 'channels.pairing.approve' : 'channels.pairing.dismiss', { channel, code, accountId })
      .then(() => {
        const name = request.name || request.id;
        showToast({ tone: 'ok', text: isApproved ? `${name} is approved.` : `${name} is denied.` });
        reload();
      }, setFailure)
      .finally(() => setBusyId(''));
  };
  if (error !== null && !data) return <ErrorState error={error} onRetry={reload} />;
  if (!data?.requests.length) return null;
  return (
    <Card title="Waiting for approval" aside={<Badge tone="accent">{data.requests.length}</Badge>}>
      <p class="soft small">Approve a person only if they tell you the same code: the agent then answers them.</p>
      {failure !== null && <ErrorState error={failure} />}
      <ul class="account-list" aria-label="People who wait for approval">
        {data.requests.map((request) => (
          <li key={`${request.channel}:${request.id}`} class="pairing">
            <span class="pairing-code mono">{oneLine(request.code, 20)}</span>
            <span class="pairing-names">
              <strong class="clip">{oneLine(request.name || request.id, 60)}</strong>
              <span class="tiny soft clip">
                {oneLine(`${request.channel} · ${request.id}`, 80)} · {formatAgo(request.createdAtMs)}
              </span>
            </span>
            <span class="row">
              <Button
                small
                kind="primary"
                label={`Approve ${request.name || request.id}`}
                isBusy={busyId === request.id}
                onClick={() => decide(request, true)}
              >
                Approve
              </Button>
              <Button small label={`Deny ${request.name || request.id}`} disabled={busyId === request.id} onClick={() => decide(request, false)}>
                Deny
              </Button>
            </span>
          </li>
        ))}
      </ul>
    </Card>
  );
}
