/** What was read of a block, and blocks that consist of many parts. */

import { h, type JSX } from 'preact';
import { Gradual } from '../components/Gradual';
import { make } from './nodes';

/** What an element takes to be drawn in addition to its text, in characters. */
export const PART_COST = 20;

export interface Read {
  node: JSX.Element;
  /** The line after it. */
  end: number;
  /** Whether its parts are drawn as the frames allow. */
  isGradual?: boolean;
}

export function countChars(lines: readonly string[], from: number, end: number): number {
  let count = 0;
  for (let at = from; at < end; at++) count += (lines[at] ?? '').length;
  return count;
}

/** Return an element with these parts; those of one that is not within another are drawn gradually. */
export function gather(
  tag: string,
  attrs: Record<string, unknown>,
  nodes: JSX.Element[],
  costs: number[],
  depth: number,
): Omit<Read, 'end'> {
  if (depth > 0) return { node: make(tag, attrs, nodes) };
  return { node: h(Gradual, { tag, attrs, nodes, costs }), isGradual: true };
}
