import type { JSX } from 'preact';
import { parseBlocks } from './blocks';
import { NodeCache } from './nodeCache';
import { escapeInvisible } from './text';

export interface Parsed {
  nodes: readonly JSX.Element[];
  /** What it takes to draw each node, in characters. */
  costs: readonly number[];
}

/** Parses a text that grows: the blocks that can no longer change are parsed once. */
export class MarkdownStream {
  #settled = ''; // the text of the blocks that are complete
  #complete: Parsed = { nodes: [], costs: [] };
  #last = '';
  #shown: Parsed = this.#complete;
  readonly #cache = new NodeCache();

  parse(raw: string): Parsed {
    const text = escapeInvisible(raw);
    if (text === this.#last) return this.#shown;
    this.#last = text;
    if (!text.startsWith(this.#settled)) [this.#settled, this.#complete] = ['', { nodes: [], costs: [] }];
    const lines = text.slice(this.#settled.length).split('\n');
    this.#cache.begin();
    const blocks = parseBlocks(lines, 0, this.#cache);
    const last = blocks.at(-1);
    this.#shown = {
      nodes: [...this.#complete.nodes, ...blocks.map(({ node }) => node)],
      costs: [...this.#complete.costs, ...blocks.map(({ cost }) => cost)],
    };
    if (!last || blocks.length < 2) return this.#shown;
    let end = this.#settled.length; // only the last block can still change
    for (let at = 0; at < last.line; at++) end += (lines[at] ?? '').length + 1;
    this.#settled = text.slice(0, end);
    this.#complete = { nodes: this.#shown.nodes.slice(0, -1), costs: this.#shown.costs.slice(0, -1) };
    return this.#shown;
  }
}
