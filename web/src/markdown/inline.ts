/** Text within a block: emphasis, code, links. The work is linear in the length of the text. */

import { h } from 'preact';
import { findRuns, flanking, isBracket, isOddMatch, type Frame, type Runs } from './emphasis';
import { bareLink, link, picture, readTarget } from './links';
import { make, type Nodes } from './nodes';

const MAX_DEPTH = 12; // of emphasis
const MAX_OPEN = 100; // markers of one paragraph that wait for their end
const MAX_LOOK_BACK = 32; // open markers that one closing marker is compared with
const SPECIAL = /[\\`*_~[\]!<&]|https?:\/\//gi;
const AUTOLINK = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const ENTITY = /&(?:amp|lt|gt|quot|apos|nbsp|#39|#x27);/y;
const ENTITIES: Readonly<Record<string, string>> = {
  '&amp;': '&', '&lt;': '<', '&gt;': '>', '&quot;': '"', '&apos;': "'", '&nbsp;': '\u00a0', '&#39;': "'", '&#x27;': "'",
};
const ESCAPABLE = /[!-/:-@[-`{-~]/;

export function parseInline(text: string): Nodes {
  return new InlineParser(text).run();
}

/** Reads a paragraph once, from left to right. */
class InlineParser {
  readonly #text: string;
  readonly #bottom: Frame = { mark: '', count: 0, size: 0, canClose: false, nodes: [], depth: 0, id: 0 };
  readonly #open: Frame[] = [this.#bottom];
  #lastId = 0;
  #linkedId = 0; // brackets opened before this one contain a link, and become none
  #ticks: Map<number, Runs> | null = null;

  constructor(text: string) {
    this.#text = text;
  }

  run(): Nodes {
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
    return this.#bottom.nodes;
  }

  #top(): Frame {
    return this.#open.at(-1) ?? this.#bottom;
  }

  #add(node: Nodes[number], depth = 0): void {
    const top = this.#top();
    top.nodes.push(node);
    if (depth > top.depth) top.depth = depth;
  }

  /** Read what starts at this special character, and return where it ends. */
  #read(at: number, special: string): number {
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
      case ']':
        return this.#closeBracket(at);
      case '<':
      case '&':
        return this.#readPattern(at, special);
      case '!':
        if (this.#text[at + 1] === '[') return this.#openBracket('![', at + 2);
        this.#add('!');
        return at + 1;
      default:
        return this.#readAddress(at, special);
    }
  }

  #readAddress(at: number, scheme: string): number {
    const isWord = /\w/.test(this.#text[at - 1] ?? ' ');
    const found = isWord ? { node: scheme, end: at + scheme.length } : bareLink(this.#text, at);
    this.#add(found.node);
    return found.end;
  }

  #readEscape(at: number): number {
    const next = this.#text[at + 1] ?? '';
    const isEscape = ESCAPABLE.test(next);
    if (next !== '\n') this.#add(isEscape ? next : '\\');
    return at + (isEscape ? 2 : 1);
  }

  #readPattern(at: number, special: string): number {
    const pattern = special === '<' ? AUTOLINK : ENTITY;
    pattern.lastIndex = at;
    const found = pattern.exec(this.#text);
    if (!found) {
      this.#add(special);
      return at + 1;
    }
    const address = found[1] ?? '';
    this.#add(ENTITIES[found[0]] ?? link(address, [address]) ?? found[0]);
    return at + found[0].length;
  }

  #readCode(at: number): number {
    const text = this.#text;
    this.#ticks ??= findRuns(text, '`');
    let end = at;
    while (text[end] === '`') end++;
    const runs = this.#ticks.get(end - at) ?? { starts: [], at: 0 };
    while (runs.at < runs.starts.length && (runs.starts[runs.at] ?? 0) < end) runs.at++;
    const close = runs.starts[runs.at];
    if (close === undefined) {
      this.#add(text.slice(at, end));
      return end;
    }
    let code = text.slice(end, close).replaceAll('\n', ' ');
    const isPadded = code.length > 1 && code.startsWith(' ') && code.endsWith(' ');
    if (isPadded && code.trim()) code = code.slice(1, -1);
    this.#add(h('code', null, code));
    return close + end - at;
  }

  #readEmphasis(at: number, mark: string): number {
    const text = this.#text;
    let end = at;
    while (text[end] === mark) end++;
    const size = end - at;
    if (mark === '~' && size !== 2) {
      this.#add(text.slice(at, end));
      return end;
    }
    const { canOpen, canClose } = flanking(mark, text[at - 1] ?? ' ', text[end] ?? ' ');
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

  #push(mark: string, count: number, size: number, canClose: boolean): void {
    this.#open.push({ mark, count, size, canClose, nodes: [], depth: 0, id: ++this.#lastId });
  }

  /** End the nearest emphasis of this mark; returns how many characters of the mark that took. */
  #close(mark: string, left: number, size: number, canOpen: boolean): number {
    const lowest = Math.max(1, this.#open.length - MAX_LOOK_BACK);
    for (let at = this.#open.length - 1; at >= lowest; at--) {
      const frame = this.#open[at];
      if (!frame || isBracket(frame)) return 0;
      if (frame.mark !== mark || isOddMatch(frame, size, canOpen)) continue;
      this.#collapse(at);
      if (frame.depth >= MAX_DEPTH) return 0;
      const count = mark !== '~' && (left < 2 || frame.count < 2) ? 1 : 2;
      const name = mark === '~' ? 'del' : count === 2 ? 'strong' : 'em';
      const node = make(name, null, frame.nodes);
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
  #collapse(at: number): void {
    const frame = this.#open[at] ?? this.#bottom;
    for (const { mark, count, nodes, depth } of this.#open.splice(at + 1)) {
      frame.nodes.push(mark.repeat(count));
      for (const node of nodes) frame.nodes.push(node);
      if (depth > frame.depth) frame.depth = depth;
    }
  }

  #openBracket(mark: string, end: number): number {
    if (this.#open.length < MAX_OPEN) this.#push(mark, 1, 1, false);
    else this.#add(mark);
    return end;
  }

  #closeBracket(at: number): number {
    const lowest = Math.max(1, this.#open.length - MAX_LOOK_BACK);
    let place = this.#open.length - 1;
    while (place >= lowest && !isBracket(this.#open[place])) place--;
    const frame = place >= lowest ? this.#open[place] : undefined;
    if (frame) {
      const end = this.#makeLink(frame, place, at);
      if (end) return end;
      const under = this.#open[place - 1] ?? this.#bottom; // the bracket is text; the rest stays open
      under.nodes.push(frame.mark, ...frame.nodes);
      under.depth = Math.max(under.depth, frame.depth);
      this.#open.splice(place, 1);
    }
    this.#add(']');
    return at + 1;
  }

  /** Make a link or picture of the bracket that ends here; returns where it ends, 0 for none. */
  #makeLink(frame: Frame, place: number, at: number): number {
    const isImage = frame.mark === '![';
    if ((!isImage && frame.id < this.#linkedId) || this.#text[at + 1] !== '(') return 0;
    const target = readTarget(this.#text, at + 2, isImage);
    if (!target) return 0;
    this.#collapse(place);
    const node = (isImage ? picture : link)(target.address, frame.nodes);
    if (!node) return 0;
    if (!isImage) this.#linkedId = frame.id;
    this.#open.pop();
    this.#add(node, frame.depth + 1);
    return target.end;
  }
}
