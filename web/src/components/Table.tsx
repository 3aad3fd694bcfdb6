import './Table.css';
import type { ComponentChildren, JSX } from 'preact';

export interface Column<R> {
  title: string;
  render: (row: R) => ComponentChildren;
  align?: 'end';
  /** Left out on phones. */
  isMinor?: boolean;
  /** A number, a time: it is not broken into lines. */
  isShort?: boolean;
}

interface Props<R> {
  /** What the rows are, for screen readers. */
  label: string;
  columns: readonly Column<R>[];
  rows: readonly R[];
  getKey: (row: R) => string;
  /** Shown instead when there are no rows. */
  empty?: ComponentChildren;
  /** Hide the titles of the columns from view, where they are obvious. */
  isPlain?: boolean;
}

/** A table that scrolls sideways where it does not fit. */
export function Table<R>({ label, columns, rows, getKey, empty, isPlain }: Props<R>): JSX.Element {
  if (!rows.length && empty !== undefined) return <>{empty}</>;
  const className = (column: Column<R>): string =>
    [column.align && 'table-end', column.isMinor && 'table-minor', column.isShort && 'table-short'].filter(Boolean).join(' ');
  return (
    <div class="table-frame" role="region" aria-label={label} tabIndex={0}>
      <table class="table">
        <thead class={isPlain ? 'visually-hidden' : ''}>
          <tr>
            {columns.map((column) => (
              <th key={column.title} scope="col" class={className(column)}>
                {column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={getKey(row)}>
              {columns.map((column) => (
                <td key={column.title} class={className(column)}>
                  {column.render(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
