import type { JSX } from 'preact';
import { escapeInvisible } from '../../markdown/text';
import type { LogLine } from './logLines';

/** One line: time, level, where it comes from, and the message. */
export function LogEntry({ line }: { line: LogLine }): JSX.Element {
  return (
    <p class={`log-line log-${line.level}`}>
      <time>{formatClock(line.time)}</time>
      <span class="log-level">{line.level}</span>
      <span class="log-text">
        {line.source && <span class="log-source">{escapeInvisible(line.source)} </span>}
        {escapeInvisible(line.message)}
      </span>
    </p>
  );
}

function formatClock(time: string): string {
  const at = new Date(time);
  return time && !Number.isNaN(at.getTime()) ? at.toLocaleTimeString(undefined, { hour12: false }) : '';
}
