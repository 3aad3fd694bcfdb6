import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { PresenceEntry } from '../../protocol/operation-results';
import { formatAgo } from '../../state/format';

interface Row extends PresenceEntry {
  at: number;
}

const COLUMNS: readonly Column<Row>[] = [
  { title: 'Client', render: ({ host, text, deviceId }) => oneLine(host ?? text ?? deviceId ?? 'client', 80) },
  {
    title: 'Kind',
    render: ({ mode, platform, version }) => oneLine([mode, platform, version].filter(Boolean).join(' · '), 100),
    isMinor: true,
  },
  { title: 'Address', render: ({ ip }) => <span class="mono">{oneLine(ip ?? '', 60)}</span>, isMinor: true },
  {
    title: 'State',
    align: 'end',
    render: (row) => (
      <Badge tone={hasLeft(row) ? 'neutral' : 'ok'}>{hasLeft(row) ? `left ${formatAgo(row.ts)}` : 'connected'}</Badge>
    ),
  },
];

function hasLeft({ reason }: Row): boolean {
  return reason === 'disconnect';
}

function keyOf({ at }: Row): string {
  return String(at);
}

/** Who is connected, or was a moment ago. */
export function PresenceCard(): JSX.Element {
  const { data, error, reload } = useRequest('system-presence', {});
  useEffect(() => onEvent('presence', reload), [reload]);
  const rows = (data ?? []).map((entry, at) => ({ ...entry, at }));
  const gone = rows.filter(hasLeft);
  return (
    <Card title="Connected now">
      {error !== null && !data && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {data && <Table label="Connected clients" columns={COLUMNS} rows={rows.filter((row) => !hasLeft(row))} getKey={keyOf} />}
      {gone.length > 0 && (
        <details class="small">
          <summary class="soft">{gone.length} left in the last minutes</summary>
          <Table label="Clients that left" columns={COLUMNS} rows={gone} getKey={keyOf} isPlain />
        </details>
      )}
    </Card>
  );
}
