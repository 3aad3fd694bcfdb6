import './CronPage.css';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Confirm } from '../../components/Confirm';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { RequestError } from '../../gateway/errors';
import { call, may, onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { CronJob } from '../../protocol/schedule-results';
import { showToast } from '../../state/toasts';
import { Calendar } from './Calendar';
import { JobForm } from './JobForm';
import { JobList } from './JobList';
import { RunHistory } from './RunHistory';

type Open = { kind: 'form'; job: CronJob | null } | { kind: 'remove'; job: CronJob } | null;

/** Scheduled jobs: a calendar of their next runs, the jobs, and what they did. */
export default function CronPage(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('cron.list', { includeDisabled: true });
  const status = useRequest('cron.status', {});
  const [open, setOpen] = useState<Open>(null);
  useEffect(() => onEvent('cron', reload), [reload]);
  const isOff = status.data?.enabled === false;
  const add = may('admin') && (
    <Button kind="primary" icon="plus" onClick={() => setOpen({ kind: 'form', job: null })}>
      Add job
    </Button>
  );
  return (
    <Page title="Schedule" badges={isOff && <Badge tone="warn">Jobs do not run</Badge>} aside={data && add}>
      <div class="stack">
        <Failure error={error} onRetry={reload} />
        {isOff && (
          <p class="soft">
            Scheduled jobs are turned off: set <code class="mono">cron.enabled</code> to true in the config.
          </p>
        )}
        {isLoading && !data && <Loading />}
        {data && <Jobs jobs={data.jobs} add={add} onOpen={setOpen} />}
      </div>
      {open?.kind === 'form' && <JobForm job={open.job} onClose={() => setOpen(null)} onSaved={reload} />}
      {open?.kind === 'remove' && <RemoveJob job={open.job} onClose={() => setOpen(null)} onRemoved={reload} />}
    </Page>
  );
}

interface JobsProps {
  jobs: readonly CronJob[];
  add: ComponentChildren;
  onOpen: (open: Open) => void;
}

function Jobs({ jobs, add, onOpen }: JobsProps): JSX.Element {
  const [shownId, setShownId] = useState('');
  const edit = (job: CronJob): void => onOpen({ kind: 'form', job });
  if (!jobs.length)
    return (
      <EmptyState icon="calendar" title="No jobs yet" action={add}>
        A job has an agent do something at a time: a summary every morning, a reminder once.
      </EmptyState>
    );
  return (
    <>
      <Calendar jobs={jobs} onOpen={edit} />
      <Card title="Jobs" aside={jobs.length}>
        <JobList
          jobs={jobs}
          onEdit={edit}
          onRemove={(job) => onOpen({ kind: 'remove', job })}
          onShowRuns={(job) => setShownId(job.id)}
        />
      </Card>
      <RunHistory job={jobs.find((job) => job.id === shownId) ?? null} onShowAll={() => setShownId('')} />
    </>
  );
}

function Failure({ error, onRetry }: { error: unknown; onRetry: () => void }): JSX.Element | null {
  if (error === null) return null;
  if (!(error instanceof RequestError) || error.code !== 'UNAVAILABLE') return <ErrorState error={error} onRetry={onRetry} />;
  return (
    <EmptyState icon="clock" title="This gateway has no scheduled jobs">
      It answers: {escapeInvisible(error.message)}.
    </EmptyState>
  );
}

function RemoveJob({ job, onClose, onRemoved }: { job: CronJob; onClose: () => void; onRemoved: () => void }): JSX.Element {
  const remove = async (): Promise<void> => {
    await call('cron.remove', { id: job.id });
    showToast({ tone: 'ok', text: `${job.name} is removed.` });
    onRemoved();
  };
  return (
    <Confirm title="Remove job" verb="Remove job" onClose={onClose} onConfirm={remove}>
      <p>
        <strong>{oneLine(job.name, 120)}</strong> does not run any more. Its earlier runs stay in their conversations.
      </p>
    </Confirm>
  );
}
