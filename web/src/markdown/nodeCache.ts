import type { JSX } from 'preact';

/** A part of a block: a row of a table or an item of a list. */
export interface Part {
  node: JSX.Element;
  /** How many blocks are in it. */
  blocks: number;
}

/**
 * The rows and items of the block that is being written. Those that did not change since the last
 * time are the same nodes, which are neither parsed nor compared again.
 */
export class NodeCache {
  #before = new Map<string, Part[]>();
  #now = new Map<string, Part[]>();

  /** Start to parse: what was built the last time can be used once. */
  begin(): void {
    this.#before = this.#now;
    this.#now = new Map();
  }

  get(key: string, build: () => Part): Part {
    const part = this.#before.get(key)?.shift() ?? build();
    const kept = this.#now.get(key);
    if (kept) kept.push(part);
    else this.#now.set(key, [part]);
    return part;
  }
}
