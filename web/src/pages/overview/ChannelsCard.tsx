import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import type { Tone } from '../../components/Badge';
import { Card } from '../../components/Card';
import { Dot } from '../../components/Dot';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import type { Requested } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { ChannelAccount, ChannelsStatus } from '../../protocol/operation-results';
import { formatAgo } from '../../state/format';

interface Row {
  channel: string;
  label: string;
  account: ChannelAccount;
}

const COLUMNS: readonly Column<Row>[] = [
  {
    title: 'Channel',
    render: ({ label, account }) => (
      <span class="row overview-channel">
        <Dot tone={toneOf(account)} />
        {label} · {oneLine(account.name ?? account.accountId, 60)}
      </span>
    ),
  },
  { title: 'State', render: ({ account }) => describeState(account), align: 'end' },
];

/** Every channel with its state and its last error. */
export function ChannelsCard({ data, error, isLoading, reload }: Requested<ChannelsStatus>): JSX.Element {
  const rows = (data?.channelOrder ?? []).flatMap((channel) =>
    (data?.channelAccounts[channel] ?? []).map((account) => ({
      channel,
      label: data?.channelLabels[channel] ?? channel,
      account,
    })),
  );
  return (
    <Card title="Channels" aside={rows.length > 0 && <Link to="channels">Manage</Link>} class="wide">
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {data && (
        <Table
          label="Channels"
          columns={COLUMNS}
          rows={rows}
          getKey={({ channel, account }) => `${channel}:${account.accountId}`}
          isPlain
          empty={
            <p class="soft small">
              No channel is set up. <Link to="channels">Add one</Link> to be reached by chat.
            </p>
          }
        />
      )}
    </Card>
  );
}

function toneOf(account: ChannelAccount): Tone {
  if (account.enabled === false) return 'neutral';
  if (account.connected) return 'ok';
  return account.running ? 'warn' : 'bad';
}

function describeState(account: ChannelAccount): JSX.Element {
  const latest = Math.max(account.lastInboundAt ?? 0, account.lastOutboundAt ?? 0);
  const state =
    account.enabled === false
      ? 'off'
      : account.connected
        ? 'connected'
        : account.running
          ? `reconnecting, try ${account.reconnectAttempts ?? 1}`
          : 'stopped';
  return (
    <>
      {state}
      {latest > 0 && ` · ${formatAgo(latest)}`}
      {Boolean(account.waiting) && ` · ${account.waiting ?? 0} to send`}
      {account.lastError && (
        <span class="overview-reason">{account.connected ? 'earlier: ' : ''}{oneLine(account.lastError, 160)}</span>
      )}
    </>
  );
}
