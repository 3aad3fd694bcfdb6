import './Diff.css';
import type { JSX } from 'preact';
import { escapeInvisible } from '../markdown/text';
import type { DiffLine } from '../state/diff';

interface Props {
  lines: readonly DiffLine[];
  /** What was changed, for screen readers. */
  label: string;
}

const MARKS = { add: '+', del: '−', same: ' ', gap: '⋯' } as const;
const NAMES = { add: 'added', del: 'removed' } as const;

/** Lines that were added and removed. */
export function Diff({ lines, label }: Props): JSX.Element {
  return (
    <pre class="diff" tabIndex={0} role="region" aria-label={label}>
      {lines.map((line, at) => (
        <span key={at} class={`diff-line diff-${line.kind}`}>
          <span class="diff-mark" aria-hidden="true">
            {MARKS[line.kind]}
          </span>
          {(line.kind === 'add' || line.kind === 'del') && (
            <span class="visually-hidden">{NAMES[line.kind]}: </span>
          )}
          {escapeInvisible(line.text)}
          {'\n'}
        </span>
      ))}
    </pre>
  );
}
