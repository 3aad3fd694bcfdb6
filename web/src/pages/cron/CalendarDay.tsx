import type { JSX } from 'preact';
import { oneLine } from '../../markdown/text';
import type { CronJob } from '../../protocol/schedule-results';
import { formatTime } from '../../state/format';
import { type CalendarRun, dayKey, groupByJob, type JobRuns } from './calendar';

interface Props {
  day: Date;
  runs: readonly CalendarRun[];
  jobs: readonly CronJob[];
  isToday: boolean;
  isSelected: boolean;
  /** The day belongs to the month before or after. */
  isOutside: boolean;
  maxShown: number;
  onSelect: () => void;
}

const MAX_TOLD = 15;

/** One day of the calendar, with its first jobs; the tooltip has the others. */
export function CalendarDay(props: Props): JSX.Element {
  const { day, runs, jobs, isToday, isSelected, isOutside, maxShown, onSelect } = props;
  const month = day.toLocaleDateString(undefined, { month: 'long' });
  const weekday = day.toLocaleDateString(undefined, { weekday: 'long' });
  const count = runs.length === 1 ? '1 run' : runs.length ? `${runs.length} runs` : 'no runs';
  const found = groupByJob(runs);
  const describe = (run: JobRuns): string => {
    const name = oneLine(jobs.find((job) => job.id === run.jobId)?.name ?? run.jobId, 80);
    return `${formatTime(run.atMs)}${run.count > 1 ? ` (${run.count} runs)` : ''} ${name}`;
  };
  const rest = found.length - maxShown;
  const classes = ['calendar-day', isOutside && 'is-outside', isToday && 'is-today'];
  return (
    <td>
      <button
        type="button"
        class={classes.filter(Boolean).join(' ')}
        data-day={dayKey(day)}
        tabIndex={isSelected ? 0 : -1}
        aria-pressed={isSelected}
        aria-current={isToday ? 'date' : undefined}
        title={found.slice(0, MAX_TOLD).map(describe).join('\n') || undefined}
        onClick={onSelect}
      >
        <span class="calendar-number">{day.getDate()}</span>
        <span class="visually-hidden">
          {month}, {weekday}, {count}
        </span>
        {runs.length > 0 && (
          <span class="calendar-count" aria-hidden="true">
            {runs.length > 99 ? '99+' : runs.length}
          </span>
        )}
        {found.slice(0, maxShown).map((run) => (
          <span key={run.jobId} class="calendar-run">
            {describe(run)}
          </span>
        ))}
        {rest > 0 && <span class="calendar-more">+{rest} more</span>}
      </button>
    </td>
  );
}
