/** What a line of Markdown is: its indent, and whether it opens a fence, an item or a rule. */

const MARK = /^ {0,3}(`{3,}|~{3,})/;
const ITEM = /^([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
export const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
export const QUOTE = /^ {0,3}>/;

export interface Fence {
  mark: string;
  indent: number;
  language: string;
}

export interface Item {
  indent: number;
  /** The column at which the content starts. */
  content: number;
  number: number | null;
  kind: string;
  text: string;
}

export function indentOf(line: string): number {
  let column = 0;
  for (const char of line) {
    if (char === ' ') column++;
    else if (char === '\t') column += 4 - (column % 4);
    else break;
  }
  return column;
}

/** Return the line without its first columns, as far as they are empty. */
export function dropIndent(line: string, columns: number): string {
  let column = 0;
  let at = 0;
  for (; column < columns && (line[at] === ' ' || line[at] === '\t'); at++)
    column += line[at] === ' ' ? 1 : 4 - (column % 4);
  return ' '.repeat(Math.max(0, column - columns)) + line.slice(at);
}

export function openFence(line: string): Fence | null {
  const mark = MARK.exec(line);
  if (!mark?.[1]) return null;
  const info = line.slice(mark[0].length);
  if (mark[1].startsWith('`') && info.includes('`')) return null;
  return { mark: mark[1], indent: indentOf(line), language: info.trim().split(/\s/, 1)[0] ?? '' };
}

export function closesFence(line: string, fence: Fence): boolean {
  const closing = MARK.exec(line)?.[1];
  return Boolean(closing?.startsWith(fence.mark) && line.trim() === closing);
}

export function isRule(line: string): boolean {
  if (indentOf(line) > 3) return false;
  const text = line.trim();
  const mark = text[0];
  if (mark !== '-' && mark !== '*' && mark !== '_') return false;
  let count = 0;
  for (const char of text) {
    if (char === mark) count++;
    else if (char !== ' ' && char !== '\t') return false;
  }
  return count >= 3;
}

/** Return what a line is as an item of a list; null when it is none. */
export function itemOf(line: string): Item | null {
  const start = line.trimStart();
  const mark = ITEM.exec(start)?.[1];
  if (!mark) return null;
  const indent = indentOf(line);
  const rest = start.slice(mark.length);
  const spaces = indentOf(rest);
  const gap = spaces > 4 || !rest.trim() ? 1 : spaces;
  const number = mark.length > 1 ? Number.parseInt(mark, 10) : null;
  return { indent, content: indent + mark.length + gap, number, kind: mark.at(-1) ?? '', text: dropIndent(rest, gap) };
}

/** Return whether a line ends a paragraph before it. */
export function startsBlock(line: string): boolean {
  if (openFence(line) ?? (HEADING.test(line) || QUOTE.test(line))) return true;
  if (isRule(line)) return true;
  const item = itemOf(line);
  return Boolean(item?.text.trim() && (item.number === null || item.number === 1));
}

export function cellsOf(line: string): string[] {
  const cells = [''];
  const text = line.trim();
  const append = (part: string): void => {
    cells.push((cells.pop() ?? '') + part);
  };
  for (let at = text.startsWith('|') ? 1 : 0; at < text.length; at++) {
    const bar = text.indexOf('|', at);
    if (bar < 0) {
      append(text.slice(at));
      break;
    }
    const isEscaped = bar > 0 && text[bar - 1] === '\\';
    append(isEscaped ? `${text.slice(at, bar - 1)}|` : text.slice(at, bar));
    if (!isEscaped && bar < text.length - 1) cells.push('');
    at = bar;
  }
  return cells.map((cell) => cell.trim());
}
