import './ChannelsPage.css';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { call, may, onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { ChannelsStatus } from '../../protocol/agent-results';
import { useInterval } from '../../state/useInterval';
import { AccountItem } from './AccountItem';
import { ChannelForm } from './ChannelForm';
import { PairingRequests } from './PairingRequests';

const REFRESH_MS = 10_000;
const CONNECTING_REFRESH_MS = 1_500; // a person who added an account waits for its state
const PROBE_TIMEOUT_MS = 75_000;

/** The chat services: the state of each account, and the people who wait to be approved. */
export default function ChannelsPage(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('channels.status', {});
  const [probed, setProbed] = useState<ChannelsStatus | null>(null);
  const [isProbing, setProbing] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const [isAdding, setAdding] = useState(false);
  const isConnecting = data ? hasConnecting(data) : false;
  useEffect(() => onEvent('config.reloaded', reload), [reload]);
  useInterval(reload, isConnecting ? CONNECTING_REFRESH_MS : REFRESH_MS);
  const probe = (): void => {
    setProbing(true);
    setFailure(null);
    call('channels.status', { probe: true }, PROBE_TIMEOUT_MS)
      .then(setProbed, setFailure)
      .finally(() => setProbing(false));
  };
  const add = may('admin') && (
    <Button kind="primary" icon="plus" onClick={() => setAdding(true)}>
      Add channel
    </Button>
  );
  return (
    <Page title="Channels" aside={add}>
      <div class="stack">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {failure !== null && <ErrorState error={failure} onRetry={probe} />}
        {isLoading && !data && <Loading />}
        <PairingRequests />
        {data && !data.channelOrder.length && (
          <EmptyState icon="plug" title="No channels yet" action={add}>
            A channel lets you write to the agent from a chat service, such as Telegram, Matrix or IRC.
          </EmptyState>
        )}
        {data && data.channelOrder.length > 0 && (
          <div>
            <Button icon="retry" isBusy={isProbing} onClick={probe}>
              Check all logins
            </Button>
          </div>
        )}
        {data?.channelOrder.map((channel) => (
          <Card key={channel} title={oneLine(data.channelLabels[channel] ?? channel, 40)} aside={<span class="mono">{channel}</span>}>
            <ul class="account-list" aria-label={`Accounts of ${channel}`}>
              {data.channelAccounts[channel]?.map((account) => (
                <AccountItem
                  key={account.accountId}
                  channel={channel}
                  account={account}
                  probe={probed?.channelAccounts[channel]?.find((one) => one.accountId === account.accountId)?.probe}
                  onChanged={reload}
                />
              ))}
            </ul>
          </Card>
        ))}
      </div>
      {isAdding && <ChannelForm onClose={() => setAdding(false)} onSaved={reload} />}
    </Page>
  );
}

function hasConnecting({ channelAccounts }: ChannelsStatus): boolean {
  return Object.values(channelAccounts).some((accounts) => accounts.some((account) => account.running && !account.connected));
}
