import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Link } from '../../app/Link';
import { Badge, type Tone } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { type Column, Table } from '../../components/Table';
import { onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { CronJob, CronRun } from '../../protocol/schedule-results';
import { formatDateTime, formatDuration } from '../../state/format';

const LIMIT = 50;
const TONES: Record<string, Tone> = { ok: 'ok', error: 'bad', skipped: 'warn' };

const COLUMNS: Column<CronRun>[] = [
  { title: 'When', render: (run) => formatDateTime(run.runAtMs) },
  {
    title: 'Job and result',
    render: (run) => (
      <>
        {run.jobName && <strong>{oneLine(run.jobName, 80)}</strong>}
        <div class="cron-summary">{escapeInvisible(run.error ?? run.summary ?? '')}</div>
      </>
    ),
  },
  { title: 'State', render: (run) => <Badge tone={TONES[run.status ?? ''] ?? 'neutral'}>{run.status ?? 'unknown'}</Badge> },
  {
    title: 'Took',
    isMinor: true,
    render: (run) => (run.durationMs === undefined ? '' : formatDuration(run.durationMs)),
  },
  {
    title: 'Conversation',
    align: 'end',
    isMinor: true,
    render: (run) =>
      run.sessionKey && (
        <Link to="chat" query={{ session: run.sessionKey }}>
          Open
        </Link>
      ),
  },
];

interface Props {
  /** The job whose runs are shown; null for all jobs. */
  job: CronJob | null;
  onShowAll: () => void;
}

/** The runs that have ended, newest first. */
export function RunHistory({ job, onShowAll }: Props): JSX.Element {
  const params = job ? { scope: 'job' as const, id: job.id } : { scope: 'all' as const };
  const { data, error, isLoading, reload } = useRequest('cron.runs', { ...params, limit: LIMIT, sortDir: 'desc' as const });
  useEffect(() => onEvent('cron', (event) => event.action === 'finished' && reload()), [reload]);
  return (
    <Card
      title={job ? `Runs of ${oneLine(job.name, 60)}` : 'Runs'}
      aside={
        job && (
          <Button small onClick={onShowAll}>
            Show all runs
          </Button>
        )
      }
    >
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {data && (
        <Table
          label="Runs"
          columns={COLUMNS}
          rows={data.entries}
          getKey={(run) => run.runId ?? `${run.jobId}:${run.ts}`}
          empty={
            <EmptyState icon="log" title="No runs yet">
              A job appears here when it has run. Run one now to test it.
            </EmptyState>
          }
        />
      )}
    </Card>
  );
}
