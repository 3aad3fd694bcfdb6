import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { Table } from '../../components/Table';
import type { GatewayStatus } from '../../protocol/operation-results';
import type { SessionRow } from '../../protocol/results';
import { formatAgo } from '../../state/format';
import { placeOf, sessions, titleOf } from '../../state/sessions';

/** Conversations with an active run, and the lanes that limit how many run at once. */
export function RunsCard({ lanes }: { lanes: GatewayStatus['lanes'] }): JSX.Element {
  const active = sessions.value.filter(({ hasActiveRun }) => hasActiveRun);
  return (
    <Card title="Active runs" class="wide">
      <Table<SessionRow>
        label="Active runs"
        columns={[
          {
            title: 'Conversation',
            render: (row) => (
              <Link to="chat" query={{ session: row.key }}>
                {titleOf(row, row.key)}
              </Link>
            ),
          },
          { title: 'Place', render: (row) => `${placeOf(row)} · ${formatAgo(row.updatedAt)}`, align: 'end' },
        ]}
        rows={active}
        getKey={({ key }) => key}
        isPlain
        empty={<p class="soft small">No agent is working right now.</p>}
      />
      <p class="row overview-lanes">
        {Object.entries(lanes).map(([name, lane]) => (
          <Badge key={name} tone={lane.waiting ? 'warn' : 'neutral'} title={`${lane.waiting} waiting`}>
            lane {name}: {lane.active} of {lane.width}
            {lane.waiting > 0 && `, ${lane.waiting} waiting`}
          </Badge>
        ))}
      </p>
    </Card>
  );
}
