/** Days of a calendar in the time zone of the browser, and the runs of each. */

import type { CronPreview } from '../../protocol/schedule-results';

export type CalendarView = 'month' | 'week';

export interface CalendarRun {
  jobId: string;
  atMs: number;
}

const DAYS_OF_WEEK = 7;

/** Return the date of a day as `2026-02-03`. */
export function dayKey(date: Date): string {
  const two = (number: number): string => String(number).padStart(2, '0');
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Return the first moment of a day, some days later. */
export function addDays(date: Date, days: number): Date {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate() + days);
}

/** Return the same day some months later, or the last day of that month. */
export function addMonths(date: Date, months: number): Date {
  const last = new Date(date.getFullYear(), date.getMonth() + months + 1, 0);
  return new Date(last.getFullYear(), last.getMonth(), Math.min(date.getDate(), last.getDate()));
}

/** Return the Monday of the week of a day. */
export function startOfWeek(date: Date): Date {
  return addDays(date, -((date.getDay() + DAYS_OF_WEEK - 1) % DAYS_OF_WEEK));
}

/** Return the weeks to show: the one of the day, or all that its month is in. */
export function calendarWeeks(date: Date, view: CalendarView): Date[][] {
  const first = startOfWeek(view === 'week' ? date : new Date(date.getFullYear(), date.getMonth(), 1));
  const last = view === 'week' ? first : new Date(date.getFullYear(), date.getMonth() + 1, 0);
  const weeks: Date[][] = [];
  for (let monday = first; monday <= last; monday = addDays(monday, DAYS_OF_WEEK))
    weeks.push(Array.from({ length: DAYS_OF_WEEK }, (_, day) => addDays(monday, day)));
  return weeks;
}

/** Return the runs by day, in the order of time. */
export function groupByDay(previews: readonly CronPreview[]): Map<string, CalendarRun[]> {
  const runs = previews.flatMap(({ id, times }) => times.map((atMs) => ({ jobId: id, atMs })));
  runs.sort((a, b) => a.atMs - b.atMs);
  const days = new Map<string, CalendarRun[]>();
  for (const run of runs) {
    const key = dayKey(new Date(run.atMs));
    const found = days.get(key);
    if (found) found.push(run);
    else days.set(key, [run]);
  }
  return days;
}

export interface JobRuns {
  jobId: string;
  /** The first run of the day. */
  atMs: number;
  count: number;
}

/** Return the runs of a day by job, in the order of each first run. */
export function groupByJob(runs: readonly CalendarRun[]): JobRuns[] {
  const jobs = new Map<string, JobRuns>();
  for (const { jobId, atMs } of runs) {
    const found = jobs.get(jobId);
    if (found) found.count += 1;
    else jobs.set(jobId, { jobId, atMs, count: 1 });
  }
  return [...jobs.values()];
}

/** Return the day that a key leads to; null for keys that do not move in a calendar. */
export function moveDay(date: Date, key: string): Date | null {
  switch (key) {
    case 'ArrowLeft':
      return addDays(date, -1);
    case 'ArrowRight':
      return addDays(date, 1);
    case 'ArrowUp':
      return addDays(date, -DAYS_OF_WEEK);
    case 'ArrowDown':
      return addDays(date, DAYS_OF_WEEK);
    case 'Home':
      return startOfWeek(date);
    case 'End':
      return addDays(startOfWeek(date), DAYS_OF_WEEK - 1);
    case 'PageUp':
      return addMonths(date, -1);
    case 'PageDown':
      return addMonths(date, 1);
    default:
      return null;
  }
}
