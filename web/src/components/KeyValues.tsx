import './KeyValues.css';
import type { ComponentChildren, JSX } from 'preact';

interface Props {
  /** Rows whose value is empty are left out. */
  rows: readonly (readonly [name: string, value: ComponentChildren])[];
}

/** Names and their values, one below the other. */
export function KeyValues({ rows }: Props): JSX.Element {
  const shown = rows.filter(([, value]) => value !== undefined && value !== null && value !== false && value !== '');
  return (
    <dl class="key-values">
      {shown.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
