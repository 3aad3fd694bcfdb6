import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { NodeRow } from '../../protocol/operation-results';

const COLUMNS: readonly Column<NodeRow>[] = [
  { title: 'Node', render: ({ displayName, nodeId }) => oneLine(displayName ?? nodeId, 80) },
  { title: 'Kind', render: ({ platform, version }) => oneLine([platform, version].filter(Boolean).join(' · '), 100), isMinor: true },
  { title: 'Commands', render: ({ commands }) => oneLine((commands ?? []).join(', '), 200), isMinor: true },
  {
    title: 'State',
    align: 'end',
    render: ({ connected }) => <Badge tone={connected ? 'ok' : 'neutral'}>{connected ? 'connected' : 'not connected'}</Badge>,
  },
];

function keyOf({ nodeId }: NodeRow): string {
  return nodeId;
}

/** Paired phones and machines that do commands for the gateway. */
export function NodesCard(): JSX.Element {
  const { data, error, reload } = useRequest('node.list', {});
  useEffect(() => onEvent('presence', reload), [reload]);
  return (
    <Card title="Nodes">
      {error !== null && !data && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {data && data.nodes.length > 0 && <Table label="Nodes" columns={COLUMNS} rows={data.nodes} getKey={keyOf} />}
      {data?.nodes.length === 0 && (
        <EmptyState icon="device" title="No node is paired">
          A node is a phone or a machine with an app of OpenClaw that does commands for you, such as taking a picture. It
          appears above when it connects, and <code>homarus nodes</code> asks it.
        </EmptyState>
      )}
    </Card>
  );
}
