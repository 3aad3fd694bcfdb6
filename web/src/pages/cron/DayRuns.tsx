import type { JSX } from 'preact';
import { Button } from '../../components/Button';
import { oneLine } from '../../markdown/text';
import type { CronJob } from '../../protocol/schedule-results';
import { formatTime } from '../../state/format';
import type { CalendarRun } from './calendar';

const MAX_SHOWN = 24;

interface Props {
  day: Date;
  runs: readonly CalendarRun[];
  jobs: readonly CronJob[];
  onOpen: (job: CronJob) => void;
}

/** The runs of the day that is selected in the calendar. */
export function DayRuns({ day, runs, jobs, onOpen }: Props): JSX.Element {
  const title = day.toLocaleDateString(undefined, { weekday: 'long', day: 'numeric', month: 'long' });
  return (
    <section class="day-runs" aria-label={`Runs on ${title}`}>
      <h3>{title}</h3>
      {!runs.length && <p class="soft small">No job runs on this day.</p>}
      <ul>
        {runs.slice(0, MAX_SHOWN).map(({ jobId, atMs }) => {
          const job = jobs.find((one) => one.id === jobId);
          return (
            <li key={jobId + String(atMs)}>
              <span class="mono">{formatTime(atMs)}</span>
              {job && (
                <Button kind="quiet" small onClick={() => onOpen(job)}>
                  {oneLine(job.name, 80)}
                </Button>
              )}
            </li>
          );
        })}
      </ul>
      {runs.length > MAX_SHOWN && <p class="soft small">{runs.length - MAX_SHOWN} more on this day.</p>}
    </section>
  );
}
