/** Links and pictures. A label cannot hide where a link leads, and nothing is loaded from outside. */

import { h, type JSX } from 'preact';
import { ExternalImage } from '../components/ExternalImage';
import { holdsLink, make, textOf, type Nodes } from './nodes';

const MAX_ADDRESS = 2_000;
const MAX_TITLE = 300;
const BARE = /https?:\/\/[^\s<>"'`[\]]+/iy;
const PICTURE = /data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+/y;
const SCHEME = /^[a-z][a-z0-9+.-]{0,30}:/i;
const LINKED = new Set(['https:', 'http:', 'mailto:']);

export interface Found {
  node: JSX.Element | string;
  end: number;
}

/** Return a link for an address in the text, without the punctuation that ends the sentence. */
export function bareLink(text: string, at: number): Found {
  BARE.lastIndex = at;
  const found = BARE.exec(text)?.[0];
  if (!found) return { node: text.slice(at, at + 7), end: at + 7 };
  let end = found.length;
  let surplus = 0; // closing brackets more than opening ones
  for (const char of found) surplus += char === ')' ? 1 : char === '(' ? -1 : 0;
  for (; end; end--) {
    const last = found[end - 1] ?? '';
    if (last === ')' && surplus > 0) surplus--;
    else if (!'.,;:!?*_~}|'.includes(last)) break;
  }
  const address = found.slice(0, end);
  const node = link(address, [address]);
  return node ? { node, end: at + end } : { node: found, end: at + found.length };
}

/** Return the text as strings and nodes, with links for its addresses and nothing else. */
export function linkAddresses(text: string): Nodes {
  const made: Nodes = [];
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

/** Return a link; null when the address is none. */
export function link(address: string, label: Nodes): JSX.Element | null {
  if (!SCHEME.test(address)) {
    if (!/^[\w./#-][^\s:]*$/.test(address) || !label.length) return null;
    return make('span', null, [...label, aside(address)]); // a file, or a place in a page
  }
  const url = parseUrl(address);
  if (!url || !LINKED.has(url.protocol)) return null;
  const inner = label.map((node) => (holdsLink(node) ? textOf(node) : node));
  const shown = inner.length ? inner : [address];
  const attributes = { href: url.href, title: url.href, target: '_blank', rel: 'noopener noreferrer nofollow' };
  const made = make('a', attributes, shown);
  if (shown.map(textOf).join('') === address && !url.username) return made;
  return make('span', null, [made, aside(url.host || url.pathname)]);
}

/** Return a picture of the text itself; one from outside is a placeholder. */
export function picture(address: string, label: Nodes): JSX.Element | null {
  const words = label.map(textOf).join('');
  PICTURE.lastIndex = 0;
  if (PICTURE.exec(address)?.[0] === address) return h('img', { src: address, alt: words || 'Image' });
  const url = parseUrl(address);
  if (url?.protocol === 'https:' || url?.protocol === 'http:')
    return h(ExternalImage, { address: url.href, host: url.host, label: words });
  return link(address, [words ? `Image: ${words}` : 'Image']);
}

/** Return the address and the end of `(address "title")`, whose bracket is before `from`. */
export function readTarget(text: string, from: number, isImage: boolean): { address: string; end: number } | null {
  let at = from;
  while (text[at] === ' ') at++;
  let address: string;
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

/** Return the characters up to a gap or a bracket that was not opened among them. */
function balanced(text: string, from: number): string {
  let depth = 0;
  let at = from;
  for (; at < text.length && at - from < MAX_ADDRESS; at++) {
    const char = text[at] ?? '';
    if (char <= ' ' || char === '<') break;
    if (char === '(' && ++depth > 3) return '';
    if (char === ')' && --depth < 0) break;
  }
  return text.slice(from, at);
}

function aside(words: string): JSX.Element {
  return h('span', { class: 'md-aside' }, ` (${words})`);
}

function parseUrl(address: string): URL | null {
  try {
    return new URL(address);
  } catch {
    return null;
  }
}
