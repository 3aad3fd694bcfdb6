import './Calendar.css';
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { useRequest } from '../../gateway/useRequest';
import type { CronJob } from '../../protocol/schedule-results';
import { addDays, addMonths, calendarWeeks, type CalendarView, dayKey, groupByDay, moveDay } from './calendar';
import { CalendarDay } from './CalendarDay';
import { DayRuns } from './DayRuns';

const WEEKDAYS = Array.from({ length: 7 }, (_, day) =>
  new Date(2024, 0, 1 + day).toLocaleDateString(undefined, { weekday: 'short' }),
);
const MAX_TIMES = 400;

interface Props {
  jobs: readonly CronJob[];
  onOpen: (job: CronJob) => void;
}

/** The next runs of all jobs on a calendar; the arrow keys move between days. */
export function Calendar({ jobs, onOpen }: Props): JSX.Element {
  const [view, setView] = useState<CalendarView>('month');
  const [selected, setSelected] = useState(() => addDays(new Date(), 0));
  const box = useRef<HTMLDivElement>(null);
  const weeks = calendarWeeks(selected, view);
  const active = jobs.filter((job) => job.enabled);
  const { data, error, reload } = useRequest('cron.preview', previewParams(active, weeks));
  const days = groupByDay(data?.previews ?? []);
  const isCut = data?.previews.some((preview) => preview.truncated) ?? false;
  const today = dayKey(new Date());
  const move = (event: KeyboardEvent): void => {
    const next = moveDay(selected, event.key);
    if (!next) return;
    event.preventDefault();
    setSelected(next);
    const name = `[data-day="${dayKey(next)}"]`;
    requestAnimationFrame(() => box.current?.querySelector<HTMLElement>(name)?.focus());
  };
  const step = (by: number): void =>
    setSelected((day) => (view === 'month' ? addMonths(day, by) : addDays(day, 7 * by)));
  return (
    <Card
      title={selected.toLocaleDateString(undefined, { month: 'long', year: 'numeric' })}
      aside={
        <div class="calendar-tools">
          <div>
            <Button small pressed={view === 'month'} onClick={() => setView('month')}>
              Month
            </Button>
            <Button small pressed={view === 'week'} onClick={() => setView('week')}>
              Week
            </Button>
          </div>
          <div>
            <Button small kind="quiet" icon="back" label={`Previous ${view}`} onClick={() => step(-1)} />
            <Button small onClick={() => setSelected(addDays(new Date(), 0))}>
              Today
            </Button>
            <Button small kind="quiet" icon="next" label={`Next ${view}`} onClick={() => step(1)} />
          </div>
        </div>
      }
    >
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      <div ref={box} onKeyDown={move}>
        <table class={`calendar calendar-${view}`}>
          <caption class="visually-hidden">Next runs; the arrow keys move between days</caption>
          <thead>
            <tr>
              {WEEKDAYS.map((name) => (
                <th key={name} scope="col">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {weeks.map((week) => (
              <tr key={week[0]?.getTime()}>
                {week.map((day) => (
                  <CalendarDay
                    key={dayKey(day)}
                    day={day}
                    runs={days.get(dayKey(day)) ?? []}
                    jobs={jobs}
                    isToday={dayKey(day) === today}
                    isSelected={dayKey(day) === dayKey(selected)}
                    isOutside={view === 'month' && day.getMonth() !== selected.getMonth()}
                    maxShown={view === 'month' ? 2 : 8}
                    onSelect={() => setSelected(day)}
                  />
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <DayRuns day={selected} runs={days.get(dayKey(selected)) ?? []} jobs={jobs} onOpen={onOpen} />
      {isCut && <p class="soft tiny">Jobs that run very often are shown for the first days only.</p>}
    </Card>
  );
}

/** Ask from now on: what has run is in the history. Null when there is nothing to ask. */
function previewParams(
  jobs: readonly CronJob[],
  weeks: readonly (readonly Date[])[],
): { schedules: { id: string; schedule: Record<string, unknown> }[]; fromMs: number; toMs: number; limit: number } | null {
  const first = weeks[0]?.[0];
  const last = weeks.at(-1)?.at(-1);
  if (!first || !last || !jobs.length) return null;
  const minuteMs = Math.floor(Date.now() / 60_000) * 60_000; // the same params within a minute
  const fromMs = Math.max(first.getTime(), minuteMs);
  const toMs = addDays(last, 1).getTime() - 1;
  if (toMs <= fromMs) return null;
  const schedules = jobs.slice(0, 200).map(({ id, schedule, state }) => ({
    id,
    // An interval without an anchor counts from its next run.
    schedule: { ...(schedule.kind === 'every' && state?.nextRunAtMs ? { anchorMs: state.nextRunAtMs } : {}), ...schedule },
  }));
  return { schedules, fromMs, toMs, limit: MAX_TIMES };
}
