import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { call } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { DevicePairRequested } from '../../protocol/protocol.generated';
import { formatAgo } from '../../state/format';
import { describeScopes } from '../../state/scopes';
import { showToast } from '../../state/toasts';

interface Props {
  request: DevicePairRequested;
  onResolved: () => void;
}

/** A device that asks to be let in: what it claims to be, what it would be allowed, two buttons. */
export function DeviceRequest({ request, onResolved }: Props): JSX.Element {
  const [busy, setBusy] = useState<'' | 'approve' | 'reject'>('');
  const [error, setError] = useState<unknown>(null);
  const resolve = (verb: 'approve' | 'reject'): void => {
    setBusy(verb);
    setError(null);
    call(`device.pair.${verb}`, { requestId: request.requestId })
      .then(() => {
        showToast({ tone: 'ok', text: verb === 'approve' ? 'The device is paired' : 'The device was rejected' });
        onResolved();
      }, setError)
      .finally(() => setBusy(''));
  };
  const name = oneLine(request.displayName ?? request.clientId ?? 'A device', 80);
  const details = [request.platform, request.remoteIp && `from ${request.remoteIp}`, request.ts && formatAgo(request.ts)];
  return (
    <li>
      <div class="devices-text">
        <p>
          <strong>{name}</strong> <span class="soft small">{oneLine(details.filter(Boolean).join(' · '), 160)}</span>
        </p>
        <p class="small">It may then: {describeScopes(request.scopes ?? [])}</p>
        <p class="soft tiny mono">{oneLine(request.deviceId, 70)}</p>
        {error !== null && <ErrorState error={error} />}
      </div>
      <div class="row">
        <Button kind="primary" small isBusy={busy === 'approve'} disabled={busy !== ''} onClick={() => resolve('approve')}>
          Approve
        </Button>
        <Button small isBusy={busy === 'reject'} disabled={busy !== ''} onClick={() => resolve('reject')}>
          Reject
        </Button>
      </div>
    </li>
  );
}
