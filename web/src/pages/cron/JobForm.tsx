import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { call } from '../../gateway/gateway';
import type { CronJob } from '../../protocol/schedule-results';
import { showToast } from '../../state/toasts';
import { draftFields, draftOf, draftSchedule, emptyDraft, type JobDraft } from './draft';
import { PayloadFields } from './PayloadFields';
import { ScheduleFields } from './ScheduleFields';

interface Props {
  /** The job to change; null for a new one. */
  job: CronJob | null;
  onClose: () => void;
  onSaved: () => void;
}

/** Add or change a job. */
export function JobForm({ job, onClose, onSaved }: Props): JSX.Element {
  const [draft, setDraft] = useState<JobDraft>(() => (job ? draftOf(job) : emptyDraft()));
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const change = (part: Partial<JobDraft>): void => setDraft((old) => ({ ...old, ...part }));
  const schedule = draftSchedule(draft, job?.schedule);
  const save = (event: Event): void => {
    event.preventDefault();
    if (!schedule) return;
    const fields = draftFields(draft, schedule, job ?? undefined);
    const revision = job?.configRevision ? { expectedConfigRevision: job.configRevision } : {};
    setBusy(true);
    setError(null);
    const saved = job ? call('cron.update', { id: job.id, patch: fields, ...revision }) : call('cron.add', fields as never);
    saved.then(
      (stored) => {
        showToast({ tone: 'ok', text: `${stored.name} is ${job ? 'changed' : 'scheduled'}.` });
        onSaved();
        onClose();
      },
      (failure: unknown) => {
        setBusy(false);
        setError(failure);
      },
    );
  };
  return (
    <Dialog title={job ? 'Edit job' : 'Add job'} onClose={onClose}>
      <form class="stack" onSubmit={save}>
        <Field label="Name">
          {(ids) => (
            <input
              class="input"
              required
              maxLength={200}
              placeholder="Morning summary"
              {...ids}
              value={draft.name}
              onInput={(event) => change({ name: event.currentTarget.value })}
            />
          )}
        </Field>
        <ScheduleFields draft={draft} schedule={schedule} onChange={change} />
        <PayloadFields draft={draft} onChange={change} />
        <label class="cron-check">
          <input type="checkbox" checked={draft.enabled} onChange={(event) => change({ enabled: event.currentTarget.checked })} />
          Enabled
        </label>
        {error !== null && <ErrorState error={error} />}
        <div class="row cron-submit">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" isBusy={isBusy} disabled={!schedule}>
            {job ? 'Save job' : 'Add job'}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
