import './JsonView.css';
import type { JSX } from 'preact';
import { escapeInvisible } from '../markdown/text';

interface Props {
  value: unknown;
  /** The name of the value; empty for the outermost one. */
  name?: string;
  depth?: number;
}

const OPEN_DEPTH = 1;
const MAX_DEPTH = 12;
const MAX_CHILDREN = 200;
const MAX_CHARS = 2_000;

/** A JSON value; objects and lists open and close. */
export function JsonView({ value, name = '', depth = 0 }: Props): JSX.Element {
  const label = name && <span class="json-name">{escapeInvisible(name)}: </span>;
  if (typeof value !== 'object' || value === null || depth >= MAX_DEPTH)
    return (
      <div class="json-value">
        {label}
        <span class={`json-${value === null ? 'null' : typeof value}`}>{showScalar(value)}</span>
      </div>
    );
  const entries = Object.entries(value as Record<string, unknown>);
  const kind = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  return (
    <details class="json" open={depth <= OPEN_DEPTH}>
      <summary>
        {label}
        <span class="soft">{kind}</span>
      </summary>
      <div class="json-inner">
        {entries.slice(0, MAX_CHILDREN).map(([key, inner]) => (
          <JsonView key={key} name={key} value={inner} depth={depth + 1} />
        ))}
        {entries.length > MAX_CHILDREN && <p class="soft">{entries.length - MAX_CHILDREN} more</p>}
      </div>
    </details>
  );
}

function showScalar(value: unknown): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) as string | undefined);
  const shown = escapeInvisible(text ?? 'undefined');
  return shown.length > MAX_CHARS ? `${shown.slice(0, MAX_CHARS)}…` : shown;
}
