import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { call } from '../gateway/gateway';
import { oneLine } from '../markdown/text';
import type { DevicePairRequested } from '../protocol/protocol.generated';
import { describeScopes } from '../state/scopes';
import { Button } from './Button';
import { ErrorState } from './ErrorState';
import { KeyValues } from './KeyValues';
import { PendingCard } from './PendingCard';

/** A device that wants to connect, and what it asks for. */
export function DeviceCard({ device }: { device: DevicePairRequested }): JSX.Element {
  const { requestId } = device;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const answer = (method: 'device.pair.approve' | 'device.pair.reject'): void => {
    setBusy(true);
    call(method, { requestId }).catch((failure: unknown) => {
      setBusy(false);
      setError(failure);
    });
  };
  return (
    <PendingCard
      id={requestId}
      icon="device"
      title="A device wants to connect"
      expiresAtMs={0}
      actions={(isReady) => (
        <>
          <Button kind="primary" disabled={!isReady || isBusy} onClick={() => answer('device.pair.approve')}>
            Approve device
          </Button>
          <Button kind="danger" disabled={!isReady || isBusy} onClick={() => answer('device.pair.reject')}>
            Reject
          </Button>
        </>
      )}
    >
      <KeyValues
        rows={[
          ['Device', oneLine([device.displayName, device.clientId, device.platform].filter(Boolean).join(' · '), 160)],
          ['Address', oneLine(device.remoteIp ?? '', 80) || 'this machine'],
          ['It may then', describeScopes(device.scopes ?? [])],
          ['Key', oneLine(device.deviceId.slice(0, 16), 40)],
        ]}
      />
      {error !== null && <ErrorState error={error} />}
    </PendingCard>
  );
}
