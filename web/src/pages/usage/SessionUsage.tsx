import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Chart } from '../../components/Chart';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { UsageLogRow } from '../../protocol/operation-results';
import { formatCount, formatDateTime, formatUsd } from '../../state/format';

interface Props {
  sessionKey: string;
  onClose: () => void;
}

interface Numbered extends UsageLogRow {
  at: number;
}

const COLUMNS: readonly Column<Numbered>[] = [
  { title: 'Time', render: ({ timestamp }) => formatDateTime(timestamp), isMinor: true },
  { title: 'Role', render: ({ role }) => oneLine(role, 20) },
  { title: 'Text', render: ({ content }) => oneLine(content, 200) },
  { title: 'Tokens', render: ({ tokens }) => (tokens === undefined ? '' : formatCount(tokens)), align: 'end' },
  { title: 'Cost', render: ({ cost }) => (cost === undefined ? '' : formatUsd(cost)), align: 'end' },
];

/** One conversation: its cost over time, and message by message. */
export function SessionUsage({ sessionKey, onClose }: Props): JSX.Element {
  const series = useRequest('sessions.usage.timeseries', { key: sessionKey });
  const log = useRequest('sessions.usage.logs', { key: sessionKey, limit: 100 });
  const points = series.data?.points ?? [];
  const rows = (log.data?.logs ?? []).map((row, at) => ({ ...row, at })).reverse();
  const error = series.error ?? log.error;
  return (
    <Dialog title={oneLine(sessionKey, 80)} onClose={onClose} wide>
      <div class="stack">
        <p class="small">
          <Link to="chat" query={{ session: sessionKey }}>
            Open the conversation
          </Link>
        </p>
        {error !== null && (
          <ErrorState
            error={error}
            onRetry={() => {
              series.reload();
              log.reload();
            }}
          />
        )}
        {error === null && !(series.data && log.data) && <Loading />}
        {points.length > 0 && (
          <Chart
            kind="line"
            points={points.map((point, at) => ({ label: `${at + 1}. ${formatDateTime(point.timestamp)}`, value: point.cumulativeCost }))}
            label="Cost up to each answer"
            format={formatUsd}
          />
        )}
        {log.data && (
          <Table
            label="Messages"
            columns={COLUMNS}
            rows={rows}
            getKey={({ at }) => String(at)}
            empty={<p class="soft small">No model has answered here yet.</p>}
          />
        )}
      </div>
    </Dialog>
  );
}
