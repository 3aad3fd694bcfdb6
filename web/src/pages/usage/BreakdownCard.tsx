import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from '../../app/Link';
import { Card } from '../../components/Card';
import { Table, type Column } from '../../components/Table';
import { Tabs } from '../../components/Tabs';
import { oneLine } from '../../markdown/text';
import type { SessionsUsage } from '../../protocol/operation-results';
import { formatCount, formatUsd } from '../../state/format';
import { sessions, titleOf } from '../../state/sessions';
import { formatShare, usageRows, type Grouping, type UsageRow } from './rows';

const TABS: readonly { id: Grouping; label: string }[] = [
  { id: 'session', label: 'Conversations' },
  { id: 'model', label: 'Models' },
  { id: 'agent', label: 'Agents' },
  { id: 'day', label: 'Days' },
];
const MAX_SHOWN = 100;
const COLUMNS: readonly Column<UsageRow>[] = [
  {
    title: 'Name',
    render: ({ name, sessionKey }) =>
      sessionKey === undefined ? (
        <span class="mono">{oneLine(name, 120)}</span>
      ) : (
        <Link to="usage" query={{ session: sessionKey }}>
          {findTitle(sessionKey)}
        </Link>
      ),
  },
  { title: 'Cost', render: ({ cost }) => formatUsd(cost), align: 'end' },
  { title: 'Tokens', render: ({ tokens }) => formatCount(tokens), align: 'end' },
  { title: 'Messages', render: ({ messages }) => (messages === undefined ? '–' : formatCount(messages)), align: 'end', isMinor: true },
  { title: 'Cache hits', render: (row) => formatShare(row.cacheShare), align: 'end', isMinor: true },
];

/** The figures by conversation, model, agent or day. */
export function BreakdownCard({ data }: { data: SessionsUsage }): JSX.Element {
  const [grouping, setGrouping] = useState<Grouping>('session');
  const rows = usageRows(data, grouping);
  const title = TABS.find(({ id }) => id === grouping)?.label ?? '';
  return (
    <Card title="Where it went" class="full">
      <Tabs label="Group by" tabs={TABS} selected={grouping} onSelect={setGrouping} />
      <div role="tabpanel" aria-label={title}>
        <Table
          label={`Usage by ${title.toLowerCase()}`}
          columns={COLUMNS}
          rows={rows.slice(0, MAX_SHOWN)}
          getKey={({ key }) => key}
          empty={<p class="soft small">Nothing was used in this time.</p>}
        />
        {rows.length > MAX_SHOWN && <p class="soft small">{rows.length - MAX_SHOWN} more with smaller sums</p>}
      </div>
    </Card>
  );
}

function findTitle(key: string): string {
  return titleOf(
    sessions.value.find((row) => row.key === key),
    key,
  );
}
