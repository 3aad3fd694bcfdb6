import type { JSX } from 'preact';
import { Badge } from '../../components/Badge';
import { Menu } from '../../components/Menu';
import { ownDeviceId } from '../../gateway/device';
import { oneLine } from '../../markdown/text';
import type { PairedDevice } from '../../protocol/operation-results';
import { formatAgo } from '../../state/format';
import { describeScopes } from '../../state/scopes';
import type { DeviceAction } from './PairedDevices';

interface Props {
  device: PairedDevice;
  onAction: (action: DeviceAction, role: string) => void;
}

/** A paired device: what it is, what it may do, when it was last used. */
export function PairedDeviceItem({ device, onAction }: Props): JSX.Element {
  const tokens = device.tokens ?? [];
  const role = tokens[0]?.role ?? 'operator';
  const isRevoked = tokens.length > 0 && tokens.every(({ revokedAtMs }) => revokedAtMs);
  const usedAtMs = Math.max(0, ...tokens.map(({ lastUsedAtMs }) => lastUsedAtMs ?? 0));
  const name = oneLine(device.displayName ?? device.clientId ?? 'Device', 80);
  const details = [
    device.platform,
    device.clientMode,
    device.remoteIp && `from ${device.remoteIp}`,
    usedAtMs ? `used ${formatAgo(usedAtMs)}` : device.approvedAtMs && `approved ${formatAgo(device.approvedAtMs)}`,
  ];
  return (
    <li>
      <div class="devices-text">
        <p>
          <strong>{name}</strong> {device.deviceId === ownDeviceId.value && <Badge tone="info">this browser</Badge>}{' '}
          {isRevoked && <Badge tone="bad">revoked</Badge>}{' '}
          <span class="soft small">{oneLine(details.filter(Boolean).join(' · '), 160)}</span>
        </p>
        <p class="soft small">May {describeScopes(device.scopes ?? [])}</p>
        <p class="soft tiny mono clip">{oneLine(device.deviceId, 70)}</p>
      </div>
      <Menu
        label={`Actions for ${name}`}
        icon="more"
        items={[
          { label: 'Rotate token', icon: 'key', disabled: isRevoked, onSelect: () => onAction('rotate', role) },
          { label: 'Revoke token', icon: 'stop', disabled: isRevoked, isDanger: true, onSelect: () => onAction('revoke', role) },
          { label: 'Remove device', icon: 'trash', isDanger: true, onSelect: () => onAction('remove', role) },
        ]}
      />
    </li>
  );
}
