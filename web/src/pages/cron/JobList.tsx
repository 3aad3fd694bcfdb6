import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { Menu } from '../../components/Menu';
import { type Column, Table } from '../../components/Table';
import { call, may } from '../../gateway/gateway';
import { oneLine } from '../../markdown/text';
import type { CronJob } from '../../protocol/schedule-results';
import { formatAgo, formatDateTime } from '../../state/format';
import { showToast } from '../../state/toasts';
import { describeSchedule } from './draft';

interface Props {
  jobs: readonly CronJob[];
  onEdit: (job: CronJob) => void;
  onRemove: (job: CronJob) => void;
  onShowRuns: (job: CronJob) => void;
}

const NOT_RUN: Record<string, string> = {
  'not-due': 'It is not due.',
  'already-running': 'It runs already.',
  disabled: 'It is disabled.',
};

/** All jobs, with their state and what can be done with each. */
export function JobList({ jobs, onEdit, onRemove, onShowRuns }: Props): JSX.Element {
  const [busyId, setBusyId] = useState('');
  const [error, setError] = useState<unknown>(null);
  const act = (job: CronJob, work: () => Promise<void>): void => {
    setBusyId(job.id);
    setError(null);
    work()
      .catch(setError)
      .finally(() => setBusyId(''));
  };
  const run = (job: CronJob): void =>
    act(job, async () => {
      const result = await call('cron.run', { id: job.id, mode: 'force' });
      const reason = NOT_RUN[result.reason ?? ''] ?? result.reason ?? 'It was not run.';
      showToast(result.ran ? { tone: 'ok', text: `${job.name} runs now.` } : { tone: 'info', text: reason });
    });
  const toggle = (job: CronJob): void =>
    act(job, async () => {
      await call('cron.update', { id: job.id, patch: { enabled: !job.enabled } });
      showToast({ tone: 'ok', text: `${job.name} is ${job.enabled ? 'disabled' : 'enabled'}.` });
    });
  const columns: Column<CronJob>[] = [
    {
      title: 'Job',
      render: (job) => (
        <>
          <strong>{oneLine(job.name, 120)}</strong>
          <div class="soft tiny mono">{oneLine(describeSchedule(job.schedule), 120)}</div>
          {job.state?.lastStatus === 'error' && <div class="tiny">{oneLine(job.state.lastError ?? '', 200)}</div>}
        </>
      ),
    },
    { title: 'State', render: (job) => <JobState job={job} /> },
    { title: 'Next run', isMinor: true, render: (job) => nextRun(job) },
    {
      title: 'Last run',
      isMinor: true,
      render: (job) => (job.state?.lastRunAtMs ? formatAgo(job.state.lastRunAtMs) : 'never'),
    },
    {
      title: 'Actions',
      align: 'end',
      render: (job) => (
        <div class="cron-actions">
          {may('admin') && (
            <Button small icon="play" label={`Run ${job.name} now`} isBusy={busyId === job.id} onClick={() => run(job)} />
          )}
          <Menu
            label={`More for ${job.name}`}
            icon="more"
            items={[
              { label: 'Show runs', icon: 'log', onSelect: () => onShowRuns(job) },
              ...(may('admin')
                ? ([
                    { label: 'Edit', icon: 'edit', onSelect: () => onEdit(job) },
                    { label: job.enabled ? 'Disable' : 'Enable', icon: 'clock', onSelect: () => toggle(job) },
                    { label: 'Remove', icon: 'trash', isDanger: true, onSelect: () => onRemove(job) },
                  ] as const)
                : []),
            ]}
          />
        </div>
      ),
    },
  ];
  return (
    <>
      {error !== null && <ErrorState error={error} />}
      <Table label="Jobs" columns={columns} rows={jobs} getKey={(job) => job.id} />
    </>
  );
}

function JobState({ job }: { job: CronJob }): JSX.Element {
  const { state } = job;
  if (state?.runningAtMs) return <Badge tone="info">running</Badge>;
  if (!job.enabled) return <Badge>disabled</Badge>;
  if (state?.lastStatus === 'error') {
    const count = state.consecutiveErrors ?? 1;
    return <Badge tone="bad">{count > 1 ? `failed ${count} times` : 'failed'}</Badge>;
  }
  if (state?.lastStatus === 'skipped') return <Badge tone="warn">skipped</Badge>;
  return <Badge tone={state?.lastStatus ? 'ok' : 'neutral'}>{state?.lastStatus ?? 'waiting'}</Badge>;
}

function nextRun(job: CronJob): string {
  if (!job.enabled) return 'none';
  return job.state?.nextRunAtMs ? formatDateTime(job.state.nextRunAtMs) : 'none';
}
