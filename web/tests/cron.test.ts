import { describe, expect, it } from 'vitest';
import { addMonths, calendarWeeks, dayKey, groupByDay, groupByJob, moveDay } from '../src/pages/cron/calendar';
import { describeSchedule, draftFields, draftOf, draftSchedule, emptyDraft } from '../src/pages/cron/draft';
import type { CronJob } from '../src/protocol/schedule-results';

const JOB: CronJob = {
  id: 'job-1',
  name: 'Morning summary',
  enabled: true,
  deleteAfterRun: true,
  schedule: { kind: 'cron', expr: '0 7 * * *', tz: 'Europe/Berlin', staggerMs: 1000 },
  payload: { kind: 'agentTurn', message: 'Sum up', model: 'mock/one', timeoutSeconds: 60 },
  delivery: { mode: 'announce', channel: 'telegram', to: '42' },
};

describe('calendar', () => {
  it('joins the runs of a job on a day', () => {
    const run = (jobId: string, atMs: number) => ({ jobId, atMs });
    expect(groupByJob([run('a', 1), run('b', 2), run('a', 3)])).toEqual([
      { jobId: 'a', atMs: 1, count: 2 },
      { jobId: 'b', atMs: 2, count: 1 },
    ]);
  });

  it('shows complete weeks from Monday', () => {
    const weeks = calendarWeeks(new Date(2026, 1, 14), 'month');
    expect(weeks).toHaveLength(5);
    expect(dayKey(weeks[0]?.[0] ?? new Date(0))).toBe('2026-01-26');
    expect(dayKey(weeks.at(-1)?.at(-1) ?? new Date(0))).toBe('2026-03-01');
    expect(calendarWeeks(new Date(2026, 1, 15), 'week').flat().map(dayKey)[0]).toBe('2026-02-09');
  });

  it('moves by keys', () => {
    const day = new Date(2026, 0, 31);
    expect(dayKey(moveDay(day, 'PageDown') ?? day)).toBe('2026-02-28');
    expect(dayKey(moveDay(day, 'ArrowRight') ?? day)).toBe('2026-02-01');
    expect(dayKey(moveDay(day, 'ArrowUp') ?? day)).toBe('2026-01-24');
    expect(dayKey(moveDay(day, 'Home') ?? day)).toBe('2026-01-26');
    expect(dayKey(moveDay(day, 'End') ?? day)).toBe('2026-02-01');
    expect(moveDay(day, 'a')).toBeNull();
    expect(dayKey(addMonths(new Date(2026, 2, 31), -1))).toBe('2026-02-28');
  });

  it('groups runs by day, in the order of time', () => {
    const noon = new Date(2026, 1, 3, 12).getTime();
    const days = groupByDay([
      { id: 'late', times: [noon + 60_000, noon + 86_400_000] },
      { id: 'early', times: [noon] },
    ]);
    expect([...days.keys()]).toEqual(['2026-02-03', '2026-02-04']);
    expect(days.get('2026-02-03')?.map((run) => run.jobId)).toEqual(['early', 'late']);
  });
});

describe('draft of a job', () => {
  it('keeps what the form does not show', () => {
    const schedule = draftSchedule(draftOf(JOB), JOB.schedule);
    expect(schedule).toEqual(JOB.schedule);
    const changed = draftSchedule({ ...draftOf(JOB), expr: '5 7 * * *' }, JOB.schedule);
    expect(changed).toEqual({ kind: 'cron', expr: '5 7 * * *', tz: 'Europe/Berlin' });
  });

  it('removes with null what a person emptied', () => {
    const draft = { ...draftOf(JOB), model: '', timeoutSeconds: '', channel: ' ' };
    const fields = draftFields(draft, JOB.schedule, JOB);
    expect(fields.payload).toEqual({ kind: 'agentTurn', message: 'Sum up', model: null, timeoutSeconds: null });
    expect(fields.delivery).toEqual({ mode: 'announce', channel: null, to: '42' });
  });

  it('leaves out of a new job what is empty', () => {
    const draft = { ...emptyDraft(), name: ' Note ', payload: 'systemEvent' as const, text: ' Look ' };
    expect(draftFields(draft, { kind: 'every', everyMs: 60_000 })).toEqual({
      name: 'Note',
      enabled: true,
      schedule: { kind: 'every', everyMs: 60_000 },
      sessionTarget: 'main',
      payload: { kind: 'systemEvent', text: 'Look' },
    });
  });

  it('has no schedule while it is incomplete', () => {
    expect(draftSchedule({ ...emptyDraft(), kind: 'at', at: '' })).toBeNull();
    expect(draftSchedule({ ...emptyDraft(), kind: 'every', every: '0' })).toBeNull();
    expect(draftSchedule({ ...emptyDraft(), kind: 'every', every: 'x' })).toBeNull();
    expect(draftSchedule({ ...emptyDraft(), kind: 'cron', expr: ' ' })).toBeNull();
  });

  it('describes schedules', () => {
    expect(describeSchedule({ kind: 'every', everyMs: 7_200_000 })).toBe('every 2 hours');
    expect(describeSchedule({ kind: 'every', everyMs: 86_400_000 })).toBe('every day');
    expect(describeSchedule(JOB.schedule)).toBe('0 7 * * * · Europe/Berlin');
    expect(describeSchedule({ kind: 'at', at: 'soon' })).toBe('once, soon');
  });
});
