import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Confirm } from '../../components/Confirm';
import { EmptyState } from '../../components/EmptyState';
import { call } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { PairedDevice } from '../../protocol/operation-results';
import { showToast } from '../../state/toasts';
import { NewToken } from './NewToken';
import { PairedDeviceItem } from './PairedDeviceItem';

export type DeviceAction = 'rotate' | 'revoke' | 'remove';

interface Props {
  devices: readonly PairedDevice[];
  onChanged: () => void;
}

const MAX_SHOWN = 100;
const TEXTS: Readonly<Record<DeviceAction, { title: string; verb: string; body: string; done: string }>> = {
  rotate: {
    title: 'Give the device a new token?',
    verb: 'Rotate token',
    body: 'Its old token is void at once, and its connections are closed. The new token is shown once.',
    done: 'The old token is void',
  },
  revoke: {
    title: 'Revoke the device’s token?',
    verb: 'Revoke token',
    body: 'Its connections are closed at once. It stays in the list and needs a new approval to connect.',
    done: 'The token is revoked',
  },
  remove: {
    title: 'Remove the device?',
    verb: 'Remove device',
    body: 'Its connections are closed at once, and it must be paired as a new device.',
    done: 'The device is removed',
  },
};

/** The paired devices, newest approval first, and what can be done with each. */
export function PairedDevices({ devices, onChanged }: Props): JSX.Element {
  const [asked, setAsked] = useState<{ action: DeviceAction; device: PairedDevice; role: string } | null>(null);
  const [token, setToken] = useState('');
  const act = async (): Promise<void> => {
    if (!asked) return;
    const { deviceId } = asked.device;
    const { role } = asked;
    if (asked.action === 'rotate') setToken((await call('device.token.rotate', { deviceId, role })).token);
    else if (asked.action === 'revoke') await call('device.token.revoke', { deviceId, role });
    else await call('device.pair.remove', { deviceId });
    showToast({ tone: 'ok', text: TEXTS[asked.action].done });
    onChanged();
  };
  if (!devices.length)
    return (
      <EmptyState icon="device" title="No device is paired">
        Open the control UI on a phone or another computer and enter the gateway’s token: the request appears here.
      </EmptyState>
    );
  const texts = asked && TEXTS[asked.action];
  return (
    <>
      <ul class="devices-list">
        {devices.slice(0, MAX_SHOWN).map((device) => (
          <PairedDeviceItem
            key={device.deviceId}
            device={device}
            onAction={(action, role) => setAsked({ action, device, role })}
          />
        ))}
      </ul>
      {devices.length > MAX_SHOWN && (
        <p class="soft small">{devices.length - MAX_SHOWN} more: “homarus devices list” shows them.</p>
      )}
      {asked && texts && (
        <Confirm title={texts.title} verb={texts.verb} onConfirm={act} onClose={() => setAsked(null)}>
          <p>
            {oneLine(asked.device.displayName ?? asked.device.clientId ?? '', 80)}{' '}
            <span class="mono">{oneLine(asked.device.deviceId, 16)}</span>: {texts.body}
          </p>
        </Confirm>
      )}
      {token && <NewToken token={token} onClose={() => setToken('')} />}
    </>
  );
}
