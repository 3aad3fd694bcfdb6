/** A diff of two texts by lines. */

export interface DiffLine {
  kind: 'add' | 'del' | 'same' | 'gap';
  text: string;
}

const MAX_CELLS = 4_000_000; // of the table that compares lines
const CONTEXT = 3;

/** Return the lines of both texts, with unchanged ones far from a change left out. */
export function diffLines(before: string, after: string): DiffLine[] {
  return shorten(compare(splitLines(before), splitLines(after)));
}

export function countChanges(lines: readonly DiffLine[]): { added: number; removed: number } {
  const count = (kind: DiffLine['kind']): number => lines.filter((line) => line.kind === kind).length;
  return { added: count('add'), removed: count('del') };
}

function splitLines(text: string): string[] {
  if (!text) return [];
  return text.replace(/\n$/, '').split('\n');
}

function compare(before: readonly string[], after: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  const shorter = Math.min(before.length, after.length) - start;
  while (end < shorter && before[before.length - 1 - end] === after[after.length - 1 - end]) end++;
  const same = (texts: readonly string[]): DiffLine[] => texts.map((text) => ({ kind: 'same', text }));
  return [
    ...same(before.slice(0, start)),
    ...compareMiddle(before.slice(start, before.length - end), after.slice(start, after.length - end)),
    ...same(before.slice(before.length - end)),
  ];
}

/** Compare with the longest common subsequence; texts that are too long are replaced as a whole. */
function compareMiddle(before: readonly string[], after: readonly string[]): DiffLine[] {
  const lines: DiffLine[] = [];
  const columns = after.length + 1;
  const isSmall = before.length * after.length <= MAX_CELLS;
  const table = new Uint32Array(isSmall ? (before.length + 1) * columns : 0);
  const cell = (row: number, column: number): number => table[row * columns + column] ?? 0;
  if (isSmall)
    for (let row = before.length - 1; row >= 0; row--)
      for (let column = after.length - 1; column >= 0; column--)
        table[row * columns + column] =
          before[row] === after[column]
            ? cell(row + 1, column + 1) + 1
            : Math.max(cell(row + 1, column), cell(row, column + 1));
  let row = 0;
  let column = 0;
  while (row < before.length || column < after.length) {
    const removed = before[row];
    const added = after[column];
    if (isSmall && removed !== undefined && removed === added) {
      lines.push({ kind: 'same', text: removed });
      row++;
      column++;
    } else if (removed !== undefined && (added === undefined || cell(row + 1, column) >= cell(row, column + 1))) {
      lines.push({ kind: 'del', text: removed });
      row++;
    } else {
      lines.push({ kind: 'add', text: added ?? '' });
      column++;
    }
  }
  return lines;
}

function shorten(lines: readonly DiffLine[]): DiffLine[] {
  const shown: DiffLine[] = [];
  const isNear = lines.map(() => false);
  lines.forEach(({ kind }, at) => {
    if (kind === 'same') return;
    for (let near = at - CONTEXT; near <= at + CONTEXT; near++) if (near in isNear) isNear[near] = true;
  });
  lines.forEach((line, at) => {
    if (isNear[at]) shown.push(line);
    else if (shown.length && shown.at(-1)?.kind !== 'gap') shown.push({ kind: 'gap', text: '' });
  });
  if (shown.at(-1)?.kind === 'gap') shown.pop();
  return shown;
}
