/** The rules for markers of emphasis and code. */

import type { Nodes } from './nodes';

const PUNCTUATION = /[\p{P}\p{S}]/u;

/** A marker that may still be closed, and what came after it. */
export interface Frame {
  mark: string;
  count: number;
  size: number;
  canClose: boolean;
  nodes: Nodes;
  depth: number;
  id: number;
}

export interface Runs {
  starts: number[];
  at: number;
}

export function isBracket(frame: Frame | undefined): boolean {
  return frame?.mark === '[' || frame?.mark === '![';
}

export function isOddMatch(frame: Frame, size: number, canOpen: boolean): boolean {
  const isOdd = (canOpen || frame.canClose) && (size + frame.size) % 3 === 0;
  return isOdd && Boolean(size % 3 || frame.size % 3);
}

export function flanking(mark: string, before: string, after: string): { canOpen: boolean; canClose: boolean } {
  const isAfterGap = !before.trim();
  const isBeforeGap = !after.trim();
  const followsPunctuation = PUNCTUATION.test(before);
  const leadsPunctuation = PUNCTUATION.test(after);
  const opens = !isBeforeGap && (!leadsPunctuation || isAfterGap || followsPunctuation);
  const closes = !isAfterGap && (!followsPunctuation || isBeforeGap || leadsPunctuation);
  const isWord = mark === '_'; // between letters, as in names, it is none
  return {
    canOpen: opens && (!isWord || !closes || followsPunctuation),
    canClose: closes && (!isWord || !opens || leadsPunctuation),
  };
}

/** Return the positions of the runs of a character, by their length. */
export function findRuns(text: string, char: string): Map<number, Runs> {
  const found = new Map<number, Runs>();
  for (let at = text.indexOf(char); at >= 0; at = text.indexOf(char, at)) {
    const start = at;
    while (text[at] === char) at++;
    const runs = found.get(at - start) ?? { starts: [], at: 0 };
    found.set(at - start, runs);
    runs.starts.push(start);
  }
  return found;
}
