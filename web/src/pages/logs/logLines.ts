/** Lines of the gateway's log, parsed and filtered. Pure. */

export const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal'] as const;
export type Level = (typeof LEVELS)[number];

export interface LogLine {
  id: number;
  raw: string;
  time: string;
  level: Level;
  source: string;
  message: string;
}

/** The memory that the page uses is bounded by these. */
export const MAX_LINES = 5_000;
export const MAX_CHARS = 4_000_000;
const ALIASES: Readonly<Record<string, Level>> = { warning: 'warn', critical: 'fatal' };

/** Return a line with its parts; one that is no JSON object is a message as it is. */
export function parseLine(raw: string, id: number): LogLine {
  const row = parseObject(raw);
  const message = textOf(row?.message) || textOf(row?.['1']) || raw;
  return { id, raw, time: textOf(row?.time), level: levelOf(textOf(row?.level)), source: textOf(row?.logger), message };
}

/** Return the lines with new ones at the end; the oldest go when there are too many. */
export function appendLines(lines: readonly LogLine[], added: readonly LogLine[]): LogLine[] {
  const all = [...lines, ...added].slice(-MAX_LINES);
  let chars = 0;
  let first = all.length;
  while (first > 0 && (chars += all[first - 1]?.raw.length ?? 0) <= MAX_CHARS) first--;
  return first ? all.slice(first) : all;
}

/** Return the lines of a level or above that contain every word of a text. */
export function filterLines(lines: readonly LogLine[], level: Level, text: string): readonly LogLine[] {
  const least = LEVELS.indexOf(level);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!least && !words.length) return lines;
  return lines.filter((line) => {
    if (LEVELS.indexOf(line.level) < least) return false;
    if (!words.length) return true;
    const searched = `${line.source} ${line.message}`.toLowerCase();
    return words.every((word) => searched.includes(word));
  });
}

function levelOf(name: string): Level {
  const lower = name.toLowerCase();
  return LEVELS.find((level) => level === lower) ?? ALIASES[lower] ?? 'info';
}

function parseObject(raw: string): Record<string, unknown> | null {
  if (!raw.startsWith('{')) return null;
  try {
    return JSON.parse(raw) as Record<string, unknown>;
  } catch {
    return null;
  }
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
