/** Markdown becomes VNodes, block by block. Nesting and look-ahead are bounded. */

import { h, type JSX } from 'preact';
import { CodeBlock } from '../components/CodeBlock';
import { countChars, gather, PART_COST, type Read } from './gather';
import { parseInline } from './inline';
import {
  closesFence,
  dropIndent,
  HEADING,
  indentOf,
  isRule,
  itemOf,
  openFence,
  QUOTE,
  startsBlock,
  type Fence,
  type Item,
} from './lines';
import { NodeCache, type Part } from './nodeCache';
import { direction, make } from './nodes';
import { readTable, tableAlignment } from './tables';

const MAX_DEPTH = 8; // of quotes and lists
const TASK = /^\[([ xX])\](?=[ \t]|$)/;

export interface Block {
  /** The number of its first line. */
  line: number;
  node: JSX.Element;
  /** What it takes to draw it, in characters. */
  cost: number;
}

/** Return the blocks of these lines; `cache` has the parts of the last one from the time before. */
export function parseBlocks(lines: readonly string[], depth = 0, cache = new NodeCache()): Block[] {
  const found: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at]?.trim()) {
      at++;
      continue;
    }
    const { node, end, isGradual } = readBlock(lines, at, depth, cache);
    found.push({ line: at, node, cost: isGradual ? 0 : PART_COST + countChars(lines, at, end) });
    at = end;
  }
  return found;
}

function readBlock(lines: readonly string[], at: number, depth: number, cache: NodeCache): Read {
  const line = lines[at] ?? '';
  const fence = openFence(line);
  if (fence) return readFence(lines, at, fence);
  if (depth === 0 && indentOf(line) >= 4) return readIndented(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return { node: title(heading[1]?.length ?? 1, headingText(line.slice(heading[0].length)), depth), end: at + 1 };
  if (isRule(line)) return { node: h('hr', null), end: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
  const item = depth < MAX_DEPTH ? itemOf(line) : null;
  if (item) return readList(lines, at, depth, item, cache);
  return readTable(lines, at, depth, cache) ?? readParagraph(lines, at, depth);
}

export function readFence(lines: readonly string[], at: number, fence: Fence): Read {
  let end = at + 1;
  const code: string[] = [];
  for (; end < lines.length; end++) {
    const line = lines[end] ?? '';
    if (closesFence(line, fence)) break;
    code.push(dropIndent(line, fence.indent));
  }
  if (end === lines.length && !code.at(-1)) code.pop(); // the line that is still being written
  return { node: h(CodeBlock, { code: code.join('\n'), language: fence.language }), end: end + 1 };
}

function readIndented(lines: readonly string[], at: number): Read {
  let end = at;
  while (end < lines.length && (!lines[end]?.trim() || indentOf(lines[end] ?? '') >= 4)) end++;
  while (!lines[end - 1]?.trim()) end--;
  const code = lines.slice(at, end).map((line) => dropIndent(line, 4));
  return { node: h(CodeBlock, { code: code.join('\n') }), end };
}

function headingText(rest: string): string {
  const text = rest.trim();
  let end = text.length;
  while (end && text[end - 1] === '#') end--;
  return end === 0 || /[ \t]/.test(text[end - 1] ?? '') ? text.slice(0, end).trimEnd() : text;
}

/** Return a heading, two levels lower: the first is the page's, the second a card's. */
function title(level: number, text: string, depth: number): JSX.Element {
  return make(`h${Math.min(6, level + 2)}`, { class: `md-h${level}`, ...direction(depth) }, parseInline(text));
}

function readQuote(lines: readonly string[], at: number, depth: number): Read {
  const inner: string[] = [];
  let end = at;
  for (; end < lines.length; end++) {
    const line = lines[end] ?? '';
    const mark = QUOTE.exec(line);
    if (mark) inner.push(line.slice(mark[0].length + (line[mark[0].length] === ' ' ? 1 : 0)));
    else if (line.trim() && inner.at(-1)?.trim() && !startsBlock(line)) inner.push(line.trim());
    else break;
  }
  return { node: make('blockquote', direction(depth), nodesOf(parseBlocks(inner, depth + 1))), end };
}

function readList(lines: readonly string[], at: number, depth: number, first: Item, cache: NodeCache): Read {
  const items: JSX.Element[] = [];
  const costs: number[] = [];
  let end = at;
  let isLoose = false;
  while (end < lines.length) {
    const line = lines[end] ?? '';
    const item = itemOf(line);
    if (item?.kind !== first.kind || item.indent > first.indent + 1 || isRule(line)) break;
    const read = readItem(lines, end, item);
    const part = cache.get(`${depth} ${read.inner.join('\n')}`, () => listItem(read.inner, depth));
    const hasNext = itemOf(lines[read.end] ?? '')?.kind === first.kind;
    isLoose ||= read.hasGap && (part.blocks > 1 || hasNext);
    items.push(part.node);
    costs.push(PART_COST + countChars(lines, end, read.end));
    end = read.end;
  }
  const start = first.number !== null && first.number !== 1 ? { start: first.number } : {};
  const props = { ...direction(depth), ...start, ...(isLoose ? { class: 'md-loose' } : {}) };
  return { ...gather(first.number === null ? 'ul' : 'ol', props, items, costs, depth), end };
}

/** Return the lines of an item; one that is indented a little less than it should be counts too. */
function readItem(lines: readonly string[], at: number, item: Item): { inner: string[]; end: number; hasGap: boolean } {
  const { indent, content, text } = item;
  const inner = [text];
  let fence = openFence(text);
  let hasGap = false;
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end] ?? '';
    if (!line.trim()) {
      inner.push('');
      continue;
    }
    const follows = inner.at(-1) !== '' || inner.length === 1;
    const depth = indentOf(line);
    const isEnd: boolean = fence !== null && line.trim() === fence.mark;
    const isInside = depth >= content || isEnd || (depth > indent + 1 && itemOf(line));
    if (isInside) inner.push(dropIndent(line, content));
    else if (follows && continuesParagraph(inner.at(-1), line)) inner.push(line.trim());
    else break;
    fence = isEnd ? null : (fence ?? openFence(inner.at(-1) ?? ''));
    hasGap ||= !follows;
  }
  while (inner.length > 1 && !inner.at(-1)) {
    inner.pop();
    hasGap = true;
  }
  return { inner, end, hasGap };
}

function continuesParagraph(before: string | undefined, line: string): boolean {
  return Boolean(before?.trim()) && !startsBlock(line) && !itemOf(line);
}

function listItem(inner: readonly string[], depth: number): Part {
  const blocks = parseBlocks(inner, depth + 1);
  const first = inner[0] ?? '';
  const task = TASK.exec(first);
  if (!task) return { node: make('li', null, nodesOf(blocks)), blocks: blocks.length };
  const isDone = task[1] !== ' ';
  const box = h('input', { type: 'checkbox', disabled: true, checked: isDone, 'aria-label': isDone ? 'Done' : 'To do' });
  const rest = [first.slice(task[0].length).trimStart(), ...inner.slice(1)];
  const node = make('li', { class: 'md-task' }, [box, ...nodesOf(parseBlocks(rest, depth + 1))]);
  return { node, blocks: blocks.length };
}

function readParagraph(lines: readonly string[], at: number, depth: number): Read {
  const words = [(lines[at] ?? '').trim()];
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end] ?? '';
    const text = line.trim();
    if (!text) break;
    const level = indentOf(line) > 3 ? 0 : underlineLevel(text);
    if (level) return { node: title(level, words.join('\n'), depth), end: end + 1 };
    if (startsBlock(line) || tableAlignment(lines, end)) break;
    words.push(text);
  }
  return { node: make('p', direction(depth), parseInline(words.join('\n'))), end };
}

/** Return the level of the heading that this line makes of the one before it; 0 for none. */
function underlineLevel(text: string): number {
  const mark = text[0];
  if (text.length < 2 || (mark !== '=' && mark !== '-')) return 0;
  for (const char of text) if (char !== mark) return 0;
  return mark === '=' ? 1 : 2;
}

function nodesOf(blocks: readonly Block[]): JSX.Element[] {
  return blocks.map(({ node }) => node);
}
