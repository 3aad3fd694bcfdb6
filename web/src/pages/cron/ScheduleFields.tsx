import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Field } from '../../components/Field';
import { call } from '../../gateway/gateway';
import { describeError } from '../../gateway/errors';
import { escapeInvisible } from '../../markdown/text';
import type { CronSchedule } from '../../protocol/schedule-results';
import { formatDateTime } from '../../state/format';
import type { EveryUnit, JobDraft } from './draft';

const DEBOUNCE_MS = 300;
const SHOWN_TIMES = 3;
const PERIOD_MS = 399 * 86_400_000;
const ZONES = Intl.supportedValuesOf('timeZone');

interface Props {
  draft: JobDraft;
  schedule: CronSchedule | null;
  onChange: (change: Partial<JobDraft>) => void;
}

/** When a job runs, and a preview of its next times. */
export function ScheduleFields({ draft, schedule, onChange }: Props): JSX.Element {
  return (
    <>
      <Field label="When">
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={draft.kind}
            onChange={(event) => onChange({ kind: event.currentTarget.value as JobDraft['kind'] })}
          >
            <option value="cron">By a cron expression</option>
            <option value="every">At an interval</option>
            <option value="at">Once</option>
          </select>
        )}
      </Field>
      {draft.kind === 'at' && <OnceFields draft={draft} onChange={onChange} />}
      {draft.kind === 'every' && <EveryFields draft={draft} onChange={onChange} />}
      {draft.kind === 'cron' && <ExpressionFields draft={draft} onChange={onChange} />}
      <NextTimes schedule={schedule} />
    </>
  );
}

type PartProps = Omit<Props, 'schedule'>;

function OnceFields({ draft, onChange }: PartProps): JSX.Element {
  return (
    <>
      <Field label="Date and time" hint={`In the time zone of this browser: ${Intl.DateTimeFormat().resolvedOptions().timeZone}`}>
        {(ids) => (
          <input
            class="input"
            type="datetime-local"
            required
            {...ids}
            value={draft.at}
            onInput={(event) => onChange({ at: event.currentTarget.value })}
          />
        )}
      </Field>
      <label class="cron-check">
        <input
          type="checkbox"
          checked={draft.deleteAfterRun}
          onChange={(event) => onChange({ deleteAfterRun: event.currentTarget.checked })}
        />
        Remove the job after it has run
      </label>
    </>
  );
}

function EveryFields({ draft, onChange }: PartProps): JSX.Element {
  return (
    <div class="cron-pair">
      <Field label="Every">
        {(ids) => (
          <input
            class="input"
            type="number"
            min="1"
            step="any"
            required
            {...ids}
            value={draft.every}
            onInput={(event) => onChange({ every: event.currentTarget.value })}
          />
        )}
      </Field>
      <Field label="Unit">
        {(ids) => (
          <select
            class="input"
            {...ids}
            value={draft.unit}
            onChange={(event) => onChange({ unit: event.currentTarget.value as EveryUnit })}
          >
            <option value="minutes">minutes</option>
            <option value="hours">hours</option>
            <option value="days">days</option>
          </select>
        )}
      </Field>
    </div>
  );
}

function ExpressionFields({ draft, onChange }: PartProps): JSX.Element {
  return (
    <div class="cron-pair">
      <Field label="Expression" hint="Minute, hour, day, month, weekday">
        {(ids) => (
          <input
            class="input mono"
            required
            spellcheck={false}
            {...ids}
            value={draft.expr}
            onInput={(event) => onChange({ expr: event.currentTarget.value })}
          />
        )}
      </Field>
      <Field label="Time zone" hint="Empty: the zone of the gateway">
        {(ids) => (
          <>
            <input
              class="input"
              list="cron-zones"
              spellcheck={false}
              {...ids}
              value={draft.tz}
              onInput={(event) => onChange({ tz: event.currentTarget.value })}
            />
            <datalist id="cron-zones">
              {ZONES.map((zone) => (
                <option key={zone} value={zone} />
              ))}
            </datalist>
          </>
        )}
      </Field>
    </div>
  );
}

/** What the gateway says about a schedule that is being typed. */
function NextTimes({ schedule }: { schedule: CronSchedule | null }): JSX.Element {
  const [text, setText] = useState('');
  const [isWrong, setWrong] = useState(false);
  const key = JSON.stringify(schedule);
  useEffect(() => {
    const wanted = JSON.parse(key) as CronSchedule | null;
    let isCurrent = true;
    const show = (shown: string, wrong: boolean): void => {
      if (!isCurrent) return;
      setText(shown);
      setWrong(wrong);
    };
    if (!wanted) {
      show('', false);
      return undefined;
    }
    const timer = setTimeout(() => {
      const fromMs = Date.now();
      const schedules = [{ schedule: { ...wanted } }];
      call('cron.preview', { schedules, fromMs, toMs: fromMs + PERIOD_MS, limit: SHOWN_TIMES }).then(
        ({ previews: [found] }) => {
          if (found?.error) show([found.error, found.fix].filter(Boolean).join('. '), true);
          else if (found?.times.length) show(`Next: ${found.times.map(formatDateTime).join(' · ')}`, false);
          else show('It does not run in the next year.', true);
        },
        (failure: unknown) => show(describeError(failure), true),
      );
    }, DEBOUNCE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [key]);
  return (
    <p class={`small ${isWrong ? 'field-error' : 'soft'}`} role="status">
      {escapeInvisible(text)}
    </p>
  );
}
