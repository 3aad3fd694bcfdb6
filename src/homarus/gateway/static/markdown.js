// Markdown becomes DOM nodes. Every node is made by createElement and every text by a text node, so
// whatever a model or a tool writes stays text: HTML is shown as it is written. The work is linear
// in the length of the text: nesting, look-back and look-ahead are bounded.

const MAX_DEPTH = 8; // of quotes and lists
const MAX_INLINE_DEPTH = 12; // of emphasis
const MAX_OPEN = 100; // markers of one paragraph that wait for their end
const MAX_LOOK_BACK = 32; // open markers that one closing marker is compared with
const MAX_COLUMNS = 64;
const MAX_ADDRESS = 2_000;
const MAX_TITLE = 300;

const HIDDEN = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]/g;
const MARK = /^ {0,3}(`{3,}|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const QUOTE = /^ {0,3}>/;
const ITEM = /^([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const TASK = /^\[([ xX])\](?=[ \t]|$)/;
const SPECIAL = /[\\`*_~[\]!<&]|https?:\/\//gi;
const BARE = /https?:\/\/[^\s<>"'`[\]]+/iy;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const ENTITY = /&(?:amp|lt|gt|quot|apos|nbsp|#39|#x27);/y;
const ENTITIES = {
  '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&apos;': "'", '&nbsp;': '\u00a0',
  '&#39;': "'", '&#x27;': "'",
};
const PICTURE = /data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+/y;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const SCHEME = /^[a-z][a-z0-9+.-]{0,30}:/i;
const LINKED = new Set(['https:', 'http:', 'mailto:']);

export function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

/** The text with every control and bidi character written out, and with plain line ends. */
export function visible(text) {
  const code = (char) => char.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');
  return text.replace(/\r\n?/g, '\n').replace(HIDDEN, (char) => `⟨U+${code(char)}⟩`);
}

/** The nodes of a complete text. */
export function markdown(text) {
  const made = document.createDocumentFragment();
  for (const { node } of parse(visible(text).split('\n'), 0)) made.append(node);
  return made;
}

/** The nodes of a text that is shown as it was typed, except for blocks of code and addresses. */
export function plain(text) {
  const made = document.createDocumentFragment();
  const lines = visible(text).split('\n');
  let words = [];
  const flush = () => {
    const shown = words.join('\n').replace(/^\n+|\n+$/g, '');
    if (shown) made.append(filled('p', addresses(shown)));
    words = [];
  };
  for (let at = 0; at < lines.length; at++) {
    const fence = openFence(lines[at]);
    if (!fence) {
      words.push(lines[at]);
      continue;
    }
    flush();
    const block = readFence(lines, at, fence);
    made.append(block.node);
    at = block.end - 1;
  }
  flush();
  return made;
}

/** A text that grows: what can no longer change is not made a second time. */
export class MarkdownView {
  #box;
  #settled = ''; // the text of the blocks that are complete
  #count = 0; // of their nodes

  constructor(box) {
    this.#box = box;
  }

  show(raw) {
    const text = visible(raw);
    if (!text.startsWith(this.#settled)) [this.#settled, this.#count] = ['', 0];
    const lines = text.slice(this.#settled.length).split('\n');
    const blocks = parse(lines, 0);
    while (this.#box.childNodes.length > this.#count) this.#box.lastChild.remove();
    for (const { node } of blocks) this.#box.append(node);
    if (blocks.length < 2) return;
    const last = blocks.at(-1).line; // only the last block can still change
    let end = this.#settled.length;
    for (let at = 0; at < last; at++) end += lines[at].length + 1;
    this.#settled = text.slice(0, end);
    this.#count += blocks.length - 1;
  }
}

// ---- blocks ----

/** The blocks of these lines, each with the number of its first line. */
function parse(lines, depth) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const { node, end } = readBlock(lines, at, depth);
    found.push({ line: at, node });
    at = end;
  }
  return found;
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  const fence = openFence(line);
  if (fence) return readFence(lines, at, fence);
  if (depth === 0 && indentOf(line) >= 4) return readIndented(lines, at);
  const heading = HEADING.exec(line);
  if (heading) return { node: title(heading[1].length, headingText(line, heading)), end: at + 1 };
  if (isRule(line)) return { node: element('hr'), end: at + 1 };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return readQuote(lines, at, depth);
  if (depth < MAX_DEPTH && itemOf(line)) return readList(lines, at, depth);
  return readTable(lines, at) ?? readParagraph(lines, at);
}

/** Whether a line ends a paragraph before it. */
function startsBlock(line) {
  if (MARK.test(line) ? openFence(line) : HEADING.test(line) || QUOTE.test(line)) return true;
  if (isRule(line)) return true;
  const item = itemOf(line);
  return Boolean(item && item.text.trim() && (item.number === null || item.number === 1));
}

function openFence(line) {
  const mark = MARK.exec(line);
  if (!mark) return null;
  const info = line.slice(mark[0].length);
  if (mark[1][0] === '`' && info.includes('`')) return null;
  return { mark: mark[1], indent: indentOf(line), language: info.trim().split(/\s/, 1)[0] };
}

function readFence(lines, at, { mark, indent, language }) {
  let end = at + 1;
  const code = [];
  for (; end < lines.length; end++) {
    const closing = MARK.exec(lines[end])?.[1];
    if (closing?.startsWith(mark) && lines[end].trim() === closing) break;
    code.push(dropIndent(lines[end], indent));
  }
  if (end === lines.length && !code.at(-1)) code.pop(); // the line that is still being written
  return { node: codeBlock(code.join('\n'), language), end: end + 1 };
}

function readIndented(lines, at) {
  let end = at;
  while (end < lines.length && (!lines[end].trim() || indentOf(lines[end]) >= 4)) end++;
  while (!lines[end - 1].trim()) end--;
  const code = lines.slice(at, end).map((line) => dropIndent(line, 4));
  return { node: codeBlock(code.join('\n'), ''), end };
}

function codeBlock(code, language) {
  const shown = element('pre', element('code', code));
  shown.tabIndex = 0; // so that the keyboard can scroll it
  const copy = element('button', 'Copy');
  copy.type = 'button';
  copy.className = 'copy';
  const name = element('span', language.slice(0, 40));
  const block = element('figure', element('figcaption', name, copy), shown);
  block.className = 'code';
  return block;
}

function headingText(line, heading) {
  const text = line.slice(heading[0].length).trim();
  let end = text.length;
  while (end && text[end - 1] === '#') end--;
  return end === 0 || /[ \t]/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

/** A heading, one level lower: the first level is the page's. */
function title(level, text) {
  return filled(`h${Math.min(6, level + 1)}`, inline(text));
}

function isRule(line) {
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

function readQuote(lines, at, depth) {
  const inner = [];
  let end = at;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const mark = QUOTE.exec(line);
    if (mark) inner.push(line.slice(mark[0].length + (line[mark[0].length] === ' ' ? 1 : 0)));
    else if (line.trim() && inner.at(-1).trim() && !startsBlock(line)) inner.push(line.trim());
    else break;
  }
  return { node: filled('blockquote', nodesOf(parse(inner, depth + 1))), end };
}

/** What a line is as an item of a list; null when it is none. */
function itemOf(line) {
  const start = line.trimStart();
  const mark = ITEM.exec(start)?.[1];
  if (!mark) return null;
  const indent = indentOf(line);
  const rest = start.slice(mark.length);
  const spaces = indentOf(rest);
  const gap = spaces > 4 || !rest.trim() ? 1 : spaces;
  const number = mark.length > 1 ? Number.parseInt(mark, 10) : null;
  const text = dropIndent(rest, gap);
  return { indent, content: indent + mark.length + gap, number, kind: mark.at(-1), text };
}

function readList(lines, at, depth) {
  const first = itemOf(lines[at]);
  const list = element(first.number === null ? 'ul' : 'ol');
  if (first.number !== null && first.number !== 1) list.start = first.number;
  let end = at;
  let isLoose = false;
  while (end < lines.length) {
    const item = itemOf(lines[end]);
    const isNext = item && item.kind === first.kind && item.indent <= first.indent + 1;
    if (!isNext || isRule(lines[end])) break;
    const read = readItem(lines, end, item);
    const blocks = parse(read.inner, depth + 1);
    isLoose ||= read.hasGap && (blocks.length > 1 || isItem(lines[read.end], first.kind));
    list.append(listItem(read.inner, blocks, depth));
    end = read.end;
  }
  if (isLoose) list.className = 'loose';
  return { node: list, end };
}

function isItem(line, kind) {
  return line !== undefined && itemOf(line)?.kind === kind;
}

/** The lines of an item; one that is indented a little less than it should be counts too. */
function readItem(lines, at, { indent, content, text }) {
  const inner = [text];
  let fence = openFence(text);
  let hasGap = false;
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (!line.trim()) {
      inner.push('');
      continue;
    }
    const follows = inner.at(-1) !== '' || inner.length === 1;
    const depth = indentOf(line);
    const closesFence = fence && line.trim() === fence.mark;
    if (depth >= content || closesFence || (depth > indent + 1 && itemOf(line)))
      inner.push(dropIndent(line, content));
    else if (follows && inner.at(-1).trim() && !startsBlock(line) && !itemOf(line))
      inner.push(line.trim());
    else break;
    fence = closesFence ? null : (fence ?? openFence(inner.at(-1)));
    hasGap ||= !follows;
  }
  while (inner.length > 1 && !inner.at(-1)) {
    inner.pop();
    hasGap = true;
  }
  return { inner, end, hasGap };
}

function listItem(inner, blocks, depth) {
  const task = TASK.exec(inner[0]);
  if (!task) return filled('li', nodesOf(blocks));
  const box = element('input');
  box.type = 'checkbox';
  box.disabled = true;
  box.checked = task[1] !== ' ';
  box.setAttribute('aria-label', box.checked ? 'Done' : 'To do');
  const rest = [inner[0].slice(task[0].length).trimStart(), ...inner.slice(1)];
  const item = filled('li', [box, ...nodesOf(parse(rest, depth + 1))]);
  item.className = 'task';
  return item;
}

function readTable(lines, at) {
  const aligned = tableAlignment(lines, at);
  if (!aligned) return null;
  const row = (name, cells) => {
    const shown = cells.slice(0, aligned.length).map((cell, column) => {
      const made = filled(name, inline(cell));
      if (aligned[column]) made.className = aligned[column];
      return made;
    });
    return element('tr', ...shown);
  };
  const body = element('tbody');
  let end = at + 2;
  for (; end < lines.length && lines[end].trim() && !startsBlock(lines[end]); end++)
    body.append(row('td', cellsOf(lines[end])));
  const table = element('table', element('thead', row('th', cellsOf(lines[at]))), body);
  const frame = element('div', table);
  frame.className = 'table';
  frame.tabIndex = 0;
  frame.setAttribute('role', 'region');
  frame.setAttribute('aria-label', 'Table');
  return { node: frame, end };
}

/** The alignment of each column, when a table starts at this line. */
function tableAlignment(lines, at) {
  const under = lines[at + 1];
  if (under === undefined || !lines[at].includes('|') || !under.includes('-')) return null;
  if (!/^[ \t|:-]+$/.test(under) || indentOf(lines[at]) > 3) return null;
  const marks = cellsOf(under);
  if (marks.length > MAX_COLUMNS || !marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  if (cellsOf(lines[at]).length !== marks.length) return null;
  return marks.map((mark) => {
    if (!mark.endsWith(':')) return '';
    return mark.startsWith(':') ? 'middle' : 'end';
  });
}

function cellsOf(line) {
  const cells = [''];
  const text = line.trim();
  for (let at = text[0] === '|' ? 1 : 0; at < text.length; at++) {
    const bar = text.indexOf('|', at);
    const isEscaped = bar > 0 && text[bar - 1] === '\\';
    if (bar < 0) cells[cells.length - 1] += text.slice(at);
    else cells[cells.length - 1] += isEscaped ? `${text.slice(at, bar - 1)}|` : text.slice(at, bar);
    if (bar < 0) break;
    if (!isEscaped && bar < text.length - 1) cells.push('');
    at = bar;
  }
  return cells.map((cell) => cell.trim());
}

function readParagraph(lines, at) {
  const words = [lines[at].trim()];
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const text = line.trim();
    if (!text) break;
    const level = indentOf(line) > 3 ? 0 : underlined(text);
    if (level) return { node: title(level, words.join('\n')), end: end + 1 };
    if (startsBlock(line) || tableAlignment(lines, end)) break;
    words.push(text);
  }
  return { node: filled('p', inline(words.join('\n'))), end };
}

/** The level of the heading that this line makes of the one before it. */
function underlined(text) {
  if (text.length < 2 || (text[0] !== '=' && text[0] !== '-')) return 0;
  for (const char of text) if (char !== text[0]) return 0;
  return text[0] === '=' ? 1 : 2;
}

function indentOf(line) {
  let column = 0;
  for (let at = 0; at < line.length; at++) {
    if (line[at] === ' ') column++;
    else if (line[at] === '\t') column += 4 - (column % 4);
    else break;
  }
  return column;
}

/** The line without its first columns, as far as they are empty. */
function dropIndent(line, columns) {
  let column = 0;
  let at = 0;
  for (; column < columns && (line[at] === ' ' || line[at] === '\t'); at++)
    column += line[at] === ' ' ? 1 : 4 - (column % 4);
  return ' '.repeat(Math.max(0, column - columns)) + line.slice(at);
}

function nodesOf(blocks) {
  return blocks.map(({ node }) => node);
}

// ---- text within a block ----

/** An element with these nodes and strings; many strings become one text. */
function filled(name, nodes) {
  const made = document.createElement(name);
  let words = '';
  for (const node of nodes) {
    if (typeof node === 'string') words += node;
    else {
      if (words) made.append(words);
      words = '';
      made.append(node);
    }
  }
  if (words) made.append(words);
  return made;
}

/** The text as strings and nodes, with links for its addresses and nothing else. */
function addresses(text) {
  const made = [];
  let at = 0;
  for (const { index } of text.matchAll(/https?:\/\//gi)) {
    if (index < at) continue;
    const found = bareLink(text, index);
    made.push(text.slice(at, index), found.node);
    at = found.end;
  }
  made.push(text.slice(at));
  return made;
}

function inline(text) {
  return new InlineParser(text).run();
}

/**
 * Reads a paragraph once, from left to right. `#open` has a frame for each marker that may still
 * be closed: its mark, how many characters of it are left, and what came after it.
 */
class InlineParser {
  #text;
  #open = [{ mark: '', count: 0, nodes: [], depth: 0, id: 0 }];
  #lastId = 0;
  #linkedId = 0; // brackets opened before this one contain a link, and become none
  #ticks = null; // length of a run of backticks → its positions

  constructor(text) {
    this.#text = text;
  }

  run() {
    const text = this.#text;
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(text);
      const next = found ? found.index : text.length;
      if (next > at) this.#add(text.slice(at, next));
      at = found ? this.#read(next, found[0]) : next;
    }
    this.#collapse(0);
    return this.#open[0].nodes;
  }

  #add(node, depth = 0) {
    const top = this.#open.at(-1);
    top.nodes.push(node);
    if (depth > top.depth) top.depth = depth;
  }

  /** Read what starts at this special character, and return where it ends. */
  #read(at, special) {
    const text = this.#text;
    switch (special) {
      case '\\':
        return this.#readEscape(at);
      case '`':
        return this.#readCode(at);
      case '*':
      case '_':
      case '~':
        return this.#readEmphasis(at, special);
      case '[':
        return this.#openBracket('[', at + 1);
      case '!':
        if (text[at + 1] === '[') return this.#openBracket('![', at + 2);
        break;
      case ']':
        return this.#closeBracket(at);
      case '<':
      case '&':
        return this.#readPattern(at, special);
      default: {
        const isWord = /\w/.test(text[at - 1] ?? ' ');
        const found = isWord ? { node: special, end: at + special.length } : bareLink(text, at);
        this.#add(found.node);
        return found.end;
      }
    }
    this.#add(special);
    return at + 1;
  }

  #readEscape(at) {
    const next = this.#text[at + 1] ?? '';
    const isEscape = ESCAPABLE.test(next);
    if (next !== '\n') this.#add(isEscape ? next : '\\');
    return at + (isEscape ? 2 : 1);
  }

  #readPattern(at, special) {
    const pattern = special === '<' ? AUTOLINK : ENTITY;
    pattern.lastIndex = at;
    const found = pattern.exec(this.#text);
    if (!found) this.#add(special);
    else this.#add(ENTITIES[found[0]] ?? link(found[1], [found[1]]) ?? found[0]);
    return at + (found ? found[0].length : 1);
  }

  #readCode(at) {
    const text = this.#text;
    this.#ticks ??= runsOf(text, '`');
    let end = at;
    while (text[end] === '`') end++;
    const places = this.#ticks.get(end - at);
    while (places.at < places.starts.length && places.starts[places.at] < end) places.at++;
    const close = places.starts[places.at];
    if (close === undefined) {
      this.#add(text.slice(at, end));
      return end;
    }
    let code = text.slice(end, close).replaceAll('\n', ' ');
    const isPadded = code.length > 1 && code[0] === ' ' && code.at(-1) === ' ';
    if (isPadded && code.trim()) code = code.slice(1, -1);
    this.#add(element('code', code));
    return close + end - at;
  }

  #readEmphasis(at, mark) {
    const text = this.#text;
    let end = at;
    while (text[end] === mark) end++;
    const [before, after] = [text[at - 1] ?? ' ', text[end] ?? ' '];
    const [isAfterGap, isBeforeGap] = [!before.trim(), !after.trim()];
    const [followsPunctuation, leadsPunctuation] = [before, after].map((c) => PUNCTUATION.test(c));
    const opens = !isBeforeGap && (!leadsPunctuation || isAfterGap || followsPunctuation);
    const closes = !isAfterGap && (!followsPunctuation || isBeforeGap || leadsPunctuation);
    const isWord = mark === '_'; // between letters, as in names, it is none
    const canOpen = opens && (!isWord || !closes || followsPunctuation);
    const canClose = closes && (!isWord || !opens || leadsPunctuation);
    const size = end - at;
    if (mark === '~' && size !== 2) {
      this.#add(text.slice(at, end));
      return end;
    }
    let left = size;
    while (left && canClose) {
      const count = this.#close(mark, left, size, canOpen);
      if (!count) break;
      left -= count;
    }
    if (left && canOpen && this.#open.length < MAX_OPEN) this.#push(mark, left, size, canClose);
    else if (left) this.#add(mark.repeat(left));
    return end;
  }

  #push(mark, count, size, canClose) {
    this.#open.push({ mark, count, size, canClose, nodes: [], depth: 0, id: ++this.#lastId });
  }

  /** End the nearest emphasis of this mark; returns how many characters of the mark that took. */
  #close(mark, left, size, canOpen) {
    const lowest = Math.max(1, this.#open.length - MAX_LOOK_BACK);
    for (let at = this.#open.length - 1; at >= lowest; at--) {
      const frame = this.#open[at];
      if (frame.mark[0] === '[' || frame.mark[0] === '!') return 0;
      if (frame.mark !== mark) continue;
      const isOdd = (canOpen || frame.canClose) && (size + frame.size) % 3 === 0;
      if (isOdd && (size % 3 || frame.size % 3)) continue;
      this.#collapse(at);
      if (frame.depth >= MAX_INLINE_DEPTH) return 0;
      const count = mark !== '~' && (left < 2 || frame.count < 2) ? 1 : 2;
      const name = mark === '~' ? 'del' : count === 2 ? 'strong' : 'em';
      const node = filled(name, frame.nodes);
      frame.count -= count;
      if (frame.count) [frame.nodes, frame.depth] = [[node], frame.depth + 1];
      else {
        this.#open.pop();
        this.#add(node, frame.depth + 1);
      }
      return count;
    }
    return 0;
  }

  /** The frames above this one were never closed: their marks are text. */
  #collapse(at) {
    const frame = this.#open[at];
    for (const { mark, count, nodes, depth } of this.#open.splice(at + 1)) {
      frame.nodes.push(mark.repeat(count));
      for (const node of nodes) frame.nodes.push(node);
      if (depth > frame.depth) frame.depth = depth;
    }
  }

  #openBracket(mark, end) {
    if (this.#open.length < MAX_OPEN) this.#push(mark, 1, 1, false);
    else this.#add(mark);
    return end;
  }

  #closeBracket(at) {
    const lowest = Math.max(1, this.#open.length - MAX_LOOK_BACK);
    let place = this.#open.length - 1;
    while (place >= lowest && !'[!'.includes(this.#open[place].mark[0])) place--;
    const frame = place >= lowest ? this.#open[place] : null;
    const isImage = frame?.mark === '![';
    const mayLink = frame && (isImage || frame.id >= this.#linkedId);
    const target = mayLink && this.#text[at + 1] === '(' ? readTarget(this.#text, at + 2, isImage) : null;
    if (target) this.#collapse(place);
    const node = target && (isImage ? picture : link)(target.address, frame.nodes);
    if (node) {
      if (!isImage) this.#linkedId = frame.id;
      this.#open.pop();
      this.#add(node, frame.depth + 1);
      return target.end;
    }
    if (frame) {
      const under = this.#open[place - 1]; // the bracket is text; what is open after it stays open
      under.nodes.push(frame.mark);
      for (const inner of frame.nodes) under.nodes.push(inner);
      under.depth = Math.max(under.depth, frame.depth);
      this.#open.splice(place, 1);
    }
    this.#add(']');
    return at + 1;
  }
}

/** The positions of the runs of a character, by their length. */
function runsOf(text, char) {
  const found = new Map();
  for (let at = text.indexOf(char); at >= 0; at = text.indexOf(char, at)) {
    const start = at;
    while (text[at] === char) at++;
    if (!found.has(at - start)) found.set(at - start, { starts: [], at: 0 });
    found.get(at - start).starts.push(start);
  }
  return found;
}

/** The address and the end of `(address "title")`, whose bracket is before `at`. */
function readTarget(text, at, isImage) {
  while (text[at] === ' ') at++;
  let address;
  PICTURE.lastIndex = at;
  const data = isImage && text.startsWith('data:', at) ? PICTURE.exec(text) : null;
  if (data) address = data[0];
  else if (text[at] === '<') {
    const end = text.slice(at, at + MAX_ADDRESS).search(/[>\n]/);
    if (end < 0 || text[at + end] !== '>') return null;
    address = text.slice(at + 1, at + end);
    at += 2;
  } else address = balanced(text, at);
  if (!address) return null;
  at += address.length;
  const rest = /^\s{0,9}(?:"[^"\n]*"|'[^'\n]*')?\s{0,9}\)/.exec(text.slice(at, at + MAX_TITLE));
  return rest ? { address, end: at + rest[0].length } : null;
}

/** The characters up to a gap or a bracket that was not opened among them. */
function balanced(text, from) {
  let depth = 0;
  let at = from;
  for (; at < text.length && at - from < MAX_ADDRESS; at++) {
    const char = text[at];
    if (char <= ' ' || char === '<') break;
    if (char === '(' && ++depth > 3) return '';
    if (char === ')' && --depth < 0) break;
  }
  return text.slice(from, at);
}

/** A link for an address in the text, without the punctuation that ends the sentence. */
function bareLink(text, at) {
  BARE.lastIndex = at;
  const found = BARE.exec(text)?.[0];
  if (!found) return { node: text.slice(at, at + 7), end: at + 7 };
  let end = found.length;
  let surplus = 0; // closing brackets more than opening ones
  for (const char of found) surplus += char === ')' ? 1 : char === '(' ? -1 : 0;
  for (; end; end--) {
    const last = found[end - 1];
    if (last === ')' && surplus > 0) surplus--;
    else if (!'.,;:!?*_~}|'.includes(last)) break;
  }
  const address = found.slice(0, end);
  const node = link(address, [address]);
  return node ? { node, end: at + end } : { node: found, end: at + found.length };
}

/** A link, or nothing when the address is none; a label cannot hide where it leads. */
function link(address, label) {
  if (!SCHEME.test(address)) {
    if (!/^[\w./#-][^\s:]*$/.test(address) || !label.length) return null;
    return filled('span', [...label, aside(address)]); // a file, or a place in a page: not for us
  }
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!LINKED.has(url.protocol)) return null;
  const inner = label.map((node) => (node.querySelector && holdsLink(node) ? node.textContent : node));
  const made = filled('a', inner.length ? inner : [address]);
  made.href = url.href;
  made.title = url.href;
  made.target = '_blank';
  made.rel = 'noopener noreferrer nofollow';
  if (made.textContent === address && !url.username) return made;
  return element('span', made, aside(url.host || url.pathname));
}

function holdsLink(node) {
  return node.nodeName === 'A' || node.querySelector('a') !== null;
}

function aside(words) {
  const made = element('span', ` (${words})`);
  made.className = 'aside';
  return made;
}

/** A picture in the text itself. One from elsewhere is a link: to load it would tell its server. */
function picture(address, label) {
  const words = label.map((node) => node.textContent ?? node).join('');
  PICTURE.lastIndex = 0;
  if (PICTURE.exec(address)?.[0] !== address)
    return link(address, [words ? `Image: ${words}` : 'Image']);
  const made = element('img');
  made.src = address;
  made.alt = words || 'Image';
  return made;
}
