/** Tables: a line of titles, a line of dashes, and rows. */

import { h, type JSX } from 'preact';
import { gather, PART_COST, type Read } from './gather';
import { parseInline } from './inline';
import { cellsOf, indentOf, startsBlock } from './lines';
import type { NodeCache } from './nodeCache';
import { direction, make } from './nodes';

const MAX_COLUMNS = 64;

export function readTable(lines: readonly string[], at: number, depth: number, cache: NodeCache): Read | null {
  const aligned = tableAlignment(lines, at);
  if (!aligned) return null;
  const row = (name: string, cells: readonly string[]): JSX.Element => {
    const shown = cells.slice(0, aligned.length).map((cell, column) => {
      const align = aligned[column];
      return make(name, align ? { class: `md-${align}` } : null, parseInline(cell));
    });
    return make('tr', null, shown);
  };
  const rows: JSX.Element[] = [];
  const costs: number[] = [];
  let end = at + 2;
  for (; end < lines.length && lines[end]?.trim() && !startsBlock(lines[end] ?? ''); end++) {
    const line = lines[end] ?? '';
    rows.push(cache.get(`| ${aligned.join()} ${line}`, () => ({ node: row('td', cellsOf(line)), blocks: 1 })).node);
    costs.push(PART_COST * aligned.length + line.length);
  }
  const head = make('thead', null, [row('th', cellsOf(lines[at] ?? ''))]);
  const { node, ...more } = gather('tbody', {}, rows, costs, depth);
  const frame = { class: 'md-table', tabIndex: 0, role: 'region', 'aria-label': 'Table' };
  return { node: h('div', frame, make('table', direction(depth), [head, node])), end, ...more };
}

/** Return the alignment of each column, when a table starts at this line. */
export function tableAlignment(lines: readonly string[], at: number): string[] | null {
  const under = lines[at + 1];
  const head = lines[at] ?? '';
  if (under === undefined || !head.includes('|') || !under.includes('-')) return null;
  if (!/^[ \t|:-]+$/.test(under) || indentOf(head) > 3) return null;
  const marks = cellsOf(under);
  if (marks.length > MAX_COLUMNS || !marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  if (cellsOf(head).length !== marks.length) return null;
  return marks.map((mark) => (!mark.endsWith(':') ? '' : mark.startsWith(':') ? 'middle' : 'end'));
}
