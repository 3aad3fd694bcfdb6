import { describe, expect, it } from 'vitest';
import { countChanges, diffLines } from '../src/state/diff';
import { formatAgo, formatCount, formatCountdown, formatDuration, formatUsd } from '../src/state/format';

describe('diffLines', () => {
  it('shows what was added and removed', () => {
    const lines = diffLines('a\nb\nc\n', 'a\nx\nc\nd\n');
    expect(lines.map(({ kind, text }) => `${kind} ${text}`)).toEqual(['same a', 'del b', 'add x', 'same c', 'add d']);
    expect(countChanges(lines)).toEqual({ added: 2, removed: 1 });
  });

  it('leaves out what is far from a change', () => {
    const before = Array.from({ length: 50 }, (_, at) => `line ${at}`).join('\n');
    const lines = diffLines(before, before.replace('line 25', 'changed'));
    expect(lines).toHaveLength(8);
    expect(lines.some(({ kind }) => kind === 'gap')).toBe(false);
  });

  it('compares long texts that share nothing', () => {
    const before = Array.from({ length: 3_000 }, (_, at) => `a${at}`).join('\n');
    expect(countChanges(diffLines(before, 'b'))).toEqual({ added: 1, removed: 3_000 });
  });
});

describe('format', () => {
  it('formats times', () => {
    const now = Date.UTC(2026, 0, 2);
    expect(formatAgo(now - 5_000, now)).toBe('just now');
    expect(formatAgo(now - 14 * 60_000, now)).toBe('14 min');
    expect(formatAgo(now - 2 * 3_600_000, now)).toBe('2 h');
    expect(formatCountdown(581)).toBe('9:41');
    expect(formatCountdown(23 * 3600 + 600)).toBe('23:10 h');
    expect(formatDuration(2_400)).toBe('2.4 s');
    expect(formatDuration(65_000)).toBe('1 min 5 s');
  });

  it('formats amounts', () => {
    expect(formatCount(1204)).toBe('1,204');
    expect(formatCount(12_300)).toBe('12.3k');
    expect(formatUsd(0.0421)).toBe('$0.042');
    expect(formatUsd(1.2)).toBe('$1.20');
  });
});
