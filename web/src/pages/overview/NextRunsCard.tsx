import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { RequestError } from '../../gateway/errors';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { CronRow } from '../../protocol/operation-results';
import { formatDateTime } from '../../state/format';

const MAX_SHOWN = 6;
const COLUMNS: readonly Column<CronRow>[] = [
  { title: 'Job', render: ({ id, name }) => oneLine(name ?? id, 80) },
  {
    title: 'Next run',
    align: 'end',
    render: ({ state }) => (
      <>
        {state?.nextRunAtMs ? formatDateTime(state.nextRunAtMs) : 'not planned'}
        {state?.lastStatus === 'error' && <span class="overview-reason">last run failed: {oneLine(state.lastError ?? '')}</span>}
      </>
    ),
  },
];

/** The scheduled jobs that run next. */
export function NextRunsCard(): JSX.Element {
  const { data, error, reload } = useRequest('cron.list', {});
  const isAbsent = error instanceof RequestError && error.code === 'UNAVAILABLE';
  const rows = [...(data?.jobs ?? [])]
    .sort((one, other) => (one.state?.nextRunAtMs ?? Infinity) - (other.state?.nextRunAtMs ?? Infinity))
    .slice(0, MAX_SHOWN);
  return (
    <Card title="Next runs" aside={rows.length > 0 && <Link to="cron">Schedule</Link>} class="wide">
      {error !== null && !isAbsent && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {(isAbsent || data) && (
        <Table
          label="Scheduled jobs"
          columns={COLUMNS}
          rows={rows}
          getKey={({ id }) => id}
          isPlain
          empty={
            <p class="soft small">
              {isAbsent ? 'This gateway runs no scheduled jobs.' : 'Nothing is scheduled. Ask the agent to remind you of something.'}
            </p>
          }
        />
      )}
    </Card>
  );
}
