import { describe, expect, it } from 'vitest';
import { describeRow, toneOf } from '../src/pages/audit/audit';
import { appendLines, filterLines, MAX_CHARS, MAX_LINES, parseLine } from '../src/pages/logs/logLines';
import { findProblems } from '../src/pages/overview/problems';
import { cacheShare, usageRows } from '../src/pages/usage/rows';
import { lastDays, pointsByDay } from '../src/state/days';

const TOTALS = { input: 10, output: 5, cacheRead: 30, cacheWrite: 0, totalTokens: 45, totalCost: 1, missingCostEntries: 0 };

describe('days', () => {
  it('counts back over the end of a month and a change of the clock', () => {
    expect(lastDays(3, '2026-03-01')).toEqual(['2026-02-27', '2026-02-28', '2026-03-01']);
    expect(new Set(lastDays(365, '2026-11-19')).size).toBe(365);
  });

  it('fills days without a value', () => {
    const points = pointsByDay(['2026-01-01', '2026-01-02'], [{ date: '2026-01-02', cost: 3 }], ({ cost }) => cost);
    expect(points.map(({ value }) => value)).toEqual([0, 3]);
  });
});

describe('log lines', () => {
  it('parses lines of any form', () => {
    const line = parseLine('{"time": "t", "level": "WARNING", "logger": "a.b", "message": "m"}', 1);
    expect(line).toMatchObject({ level: 'warn', source: 'a.b', message: 'm' });
    expect(parseLine('{"level": 5, "message": ["x"]}', 2)).toMatchObject({ level: 'info', source: '' });
    expect(parseLine('plain text {', 3)).toMatchObject({ message: 'plain text {', time: '' });
    expect(parseLine('{broken', 4).message).toBe('{broken');
  });

  it('keeps a bounded number of lines and characters', () => {
    const many = Array.from({ length: MAX_LINES + 50 }, (_, at) => parseLine(`line ${at}`, at));
    const kept = appendLines([], many);
    expect(kept).toHaveLength(MAX_LINES);
    expect(kept.at(-1)?.message).toBe(`line ${MAX_LINES + 49}`);
    const long = parseLine('x'.repeat(MAX_CHARS / 2), 0);
    expect(appendLines([long, long], [long])).toHaveLength(2);
  });

  it('filters by level and by every word', () => {
    const lines = ['{"level":"error","message":"pump failed"}', '{"level":"info","message":"pump on"}'].map(parseLine);
    expect(filterLines(lines, 'warn', '')).toHaveLength(1);
    expect(filterLines(lines, 'trace', 'PUMP on')).toHaveLength(1);
    expect(filterLines(lines, 'trace', 'pump')).toHaveLength(2);
  });
});

describe('usage rows', () => {
  it('sorts by cost and computes cache hits', () => {
    expect(cacheShare(TOTALS)).toBe(0.75);
    expect(cacheShare({ ...TOTALS, input: 0, cacheRead: 0 })).toBeNull();
    const model = (name: string, totalCost: number) => ({ provider: 'p', model: name, count: 1, totals: { ...TOTALS, totalCost } });
    const aggregates = { byModel: [model('a', 1), model('b', 2)], byAgent: [], daily: [] };
    const rows = usageRows({ startDate: '', endDate: '', sessions: [], totals: TOTALS, aggregates }, 'model');
    expect(rows.map(({ name }) => name)).toEqual(['p/b', 'p/a']);
  });
});

describe('audit rows', () => {
  const row = { seq: 1, atMs: 0, agent: '', session: '', tool: 'exec', hash: '' };

  it('describes rows and marks what was denied or failed', () => {
    const denied = { ...row, kind: 'decision', data: { action: 'deny', rule: 'taint', reason: 'r' } };
    expect(describeRow(denied)).toBe('deny by taint: r');
    expect(toneOf(denied)).toBe('bad');
    const failed = { ...row, kind: 'execution', data: { outcome: 'done', durationMs: 5, exitCode: 2 } };
    expect(describeRow(failed)).toBe('done, in 5 ms, exit 2');
    expect(toneOf(failed)).toBe('bad');
    expect(describeRow({ ...row, kind: 'config', data: { by: 'ada', changed: ['a', 'b'], hash: 'x' } })).toBe('by ada; changed a, b');
  });
});

describe('problems', () => {
  it('names what needs a person', () => {
    const accounts = [{ accountId: 'a', running: true, connected: false, lastError: 'gone' }, { accountId: 'b', enabled: false, lastError: 'x' }];
    const channels = { channelOrder: ['irc'], channelLabels: { irc: 'IRC' }, channelAccounts: { irc: accounts } };
    const stuck = { id: '1', channel: 'irc', preview: '', state: 'parked', why: '', at: 0, ageMs: 0, attempts: 1 };
    const problems = findProblems({ ok: false, disk: { ok: false, problem: 'full' } }, null, channels, { messages: [stuck], parcels: [] });
    expect(problems).toEqual(['The disk cannot be written: full', 'IRC · a: gone', '1 message needs a decision of yours.']);
    expect(findProblems({ ok: true }, null, null, null)).toEqual([]);
  });
});
