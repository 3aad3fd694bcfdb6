/** What a tool call shows: its subject, its icon and, for an edit, its diff. */

import type { Tone } from '../../components/Badge';
import type { IconName } from '../../components/icons';
import { oneLine } from '../../markdown/text';
import { diffLines, type DiffLine } from '../../state/diff';
import { formatDuration } from '../../state/format';
import type { ToolBlock } from './turns';

const SUBJECTS = ['command', 'path', 'file_path', 'pattern', 'query', 'url', 'message', 'task', 'question', 'text'];
const ICONS: readonly (readonly [RegExp, IconName])[] = [
  [/^(exec|process|bash)$/, 'term'],
  [/^(edit|write|apply_patch)$/, 'edit'],
  [/^(read|ls|find|grep|file_delete)$/, 'file'],
  [/^memory/, 'book'],
  [/^(web_|browser)/, 'globe'],
  [/^(image|canvas)/, 'image'],
  [/^(message|sessions_send)/, 'chat'],
  [/^(sessions_spawn|subagents|agents)/, 'users'],
  [/^cron/, 'clock'],
];

export function iconOf(name: string): IconName {
  return ICONS.find(([pattern]) => pattern.test(name))?.[1] ?? 'tool';
}

/** Return what a call is about, on one line. */
export function subjectOf({ args }: Pick<ToolBlock, 'args'>): string {
  const named = SUBJECTS.map((name) => args[name]).find((value) => typeof value === 'string' && value);
  if (typeof named === 'string') return oneLine(named, 160);
  const values = Object.entries(args).map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  return oneLine(values.join(' '), 160);
}

/** Return how a call stands: what is said of it, and the colour of one that has not ended. */
export function describeState(
  { startedAtMs, endedAtMs, isRunning }: Pick<ToolBlock, 'startedAtMs' | 'endedAtMs' | 'isRunning'>,
  isWaiting: boolean,
): { words: string; tone: Tone | null } {
  if (isWaiting && !endedAtMs) return { words: 'waiting for approval', tone: 'warn' };
  if (isRunning) return { words: 'running', tone: 'accent' };
  const tookMs = endedAtMs && startedAtMs ? endedAtMs - startedAtMs : 0;
  return { words: tookMs > 0 ? formatDuration(tookMs) : '', tone: null };
}

/** Return the lines that an edit changes; null for any other call. */
export function diffOf({ name, args }: Pick<ToolBlock, 'name' | 'args'>): DiffLine[] | null {
  const [before, after] = [textArg(args, 'oldText', 'old_string'), textArg(args, 'newText', 'new_string')];
  if (name === 'edit' && before !== null && after !== null) return diffLines(before, after);
  const content = textArg(args, 'content');
  if (name === 'write' && content !== null) return diffLines('', content);
  const patch = textArg(args, 'input', 'patch');
  if (name === 'apply_patch' && patch !== null) return patchLines(patch);
  return null;
}

function textArg(args: ToolBlock['args'], ...names: string[]): string | null {
  const found = names.map((name) => args[name]).find((value) => typeof value === 'string');
  return typeof found === 'string' ? found : null;
}

function patchLines(patch: string): DiffLine[] {
  const kinds = { '+': 'add', '-': 'del' } as const;
  return patch.split('\n').map((line) => {
    const kind = kinds[line[0] as '+' | '-'] as 'add' | 'del' | undefined;
    return kind ? { kind, text: line.slice(1) } : { kind: 'same', text: line.replace(/^ /, '') };
  });
}
