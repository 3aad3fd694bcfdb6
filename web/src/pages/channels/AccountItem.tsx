import type { JSX } from 'preact';
import { Badge, type Tone } from '../../components/Badge';
import { may } from '../../gateway/gateway';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { ChannelAccount } from '../../protocol/agent-results';
import { formatAgo } from '../../state/format';
import { AccountActions } from './AccountActions';

interface Props {
  channel: string;
  account: ChannelAccount;
  probe: ChannelAccount['probe'];
  onChanged: () => void;
}

/** One account: whether it works, why not, and when it was last used. */
export function AccountItem({ channel, account, probe, onChanged }: Props): JSX.Element {
  const [tone, word] = accountState(account);
  const used = [
    account.lastInboundAt && `last message in ${formatAgo(account.lastInboundAt)}`,
    account.lastOutboundAt && `last message out ${formatAgo(account.lastOutboundAt)}`,
    account.waiting && `${account.waiting} replies wait`,
    account.dmPolicy && `direct messages: ${account.dmPolicy}`,
  ];
  return (
    <li>
      <div class="account-head">
        <Badge tone={tone}>{word}</Badge>
        <strong>{oneLine(account.name ?? account.accountId, 60)}</strong>
        {account.name && <span class="mono tiny soft">{oneLine(account.accountId, 40)}</span>}
        {may('admin') && <AccountActions channel={channel} account={account} onChanged={onChanged} />}
      </div>
      <p class="tiny soft">{used.filter(Boolean).join(' · ') || 'No messages yet'}</p>
      {account.lastError && <p class="field-error">{escapeInvisible(account.lastError)}</p>}
      {probe && (
        <p class={`small ${probe.ok ? 'account-ok' : 'field-error'}`} role="status">
          {probe.ok ? `The login works: ${oneLine(probe.identity ?? '', 80)}` : `The login failed: ${escapeInvisible(probe.error ?? '')}`}
        </p>
      )}
    </li>
  );
}

export function accountState(account: ChannelAccount): [Tone, string] {
  if (account.enabled === false) return ['neutral', 'off'];
  if (account.configured === false) return ['warn', 'not complete'];
  if (account.lastError) return account.running ? ['warn', 'reconnecting'] : ['bad', 'stopped'];
  if (account.connected) return ['ok', 'connected'];
  return account.running ? ['info', 'connecting'] : ['neutral', 'stopped'];
}
