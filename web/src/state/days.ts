/** Days of the calendar as the gateway names them: `2026-02-17`. */

import type { Point } from '../components/Chart';

const DAY_MS = 86_400_000;

/** Return the last days up to one of them, oldest first. The gateway says which day it is where it runs. */
export function lastDays(count: number, until: string): string[] {
  const untilMs = Date.parse(`${until}T00:00:00Z`);
  return Array.from({ length: count }, (_, at) => new Date(untilMs - (count - 1 - at) * DAY_MS).toISOString().slice(0, 10));
}

/** “17 Feb” of `2026-02-17`. */
export function formatDay(day: string): string {
  const at = new Date(`${day}T12:00:00`);
  return Number.isNaN(at.getTime()) ? day : at.toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}

/** Return a point for each of these days; days without a value are 0. */
export function pointsByDay<R extends { date: string }>(
  days: readonly string[],
  rows: readonly R[],
  getValue: (row: R) => number,
): Point[] {
  const values = new Map(rows.map((row) => [row.date, getValue(row)]));
  return days.map((day) => ({ label: formatDay(day), value: values.get(day) ?? 0 }));
}
