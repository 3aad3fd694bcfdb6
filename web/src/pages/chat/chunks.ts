import type { Turn } from './turns';

const CHUNK_TURNS = 6;
const CHUNK_COST = 4_000;
const TURN_COST = 150; // of what is around the text, in characters
const TOOL_COST = 250;
const PARSED_CHARS = 4; // that are parsed in the time in which one is drawn
const SPARE_BOUNDARIES = 100;

/**
 * Return the turns in chunks. `boundaries` has the keys of turns that start one, and gets new ones:
 * neither older nor newer turns change the chunks that are there.
 */
export function chunkTurns(turns: readonly Turn[], boundaries: Set<string>): Turn[][] {
  const chunks: Turn[][] = [];
  let open: Turn[] = [];
  let cost = 0;
  for (const turn of turns) {
    if (!open.length || open.length >= CHUNK_TURNS || cost >= CHUNK_COST || boundaries.has(turn.key)) {
      boundaries.add(turn.key);
      [open, cost] = [[], 0];
      chunks.push(open);
    }
    open.push(turn);
    cost += totalCostOf(turn);
  }
  if (boundaries.size > chunks.length + SPARE_BOUNDARIES) forget(boundaries, turns);
  return chunks;
}

/** Return what it takes to start with a turn; the blocks of an answer count for themselves. */
export function costOf(turn: Turn): number {
  if (turn.kind !== 'answer') return TURN_COST + turn.text.length;
  return TURN_COST + turn.blocks.reduce((sum, block) => sum + (block.kind === 'text' ? block.text.length : 0), 0) / PARSED_CHARS;
}

/** Return what it takes to draw each block of an answer. */
export function costsOf(blocks: Extract<Turn, { kind: 'answer' }>['blocks']): number[] {
  return blocks.map((block) => (block.kind === 'text' ? 0 : TOOL_COST));
}

function totalCostOf(turn: Turn): number {
  if (turn.kind !== 'answer') return costOf(turn);
  return turn.blocks.reduce((sum, block) => sum + (block.kind === 'text' ? block.text.length : TOOL_COST), TURN_COST);
}

/** Forget the boundaries of turns that are no longer there. */
function forget(boundaries: Set<string>, turns: readonly Turn[]): void {
  const keys = new Set(turns.map(({ key }) => key));
  for (const key of boundaries) if (!keys.has(key)) boundaries.delete(key);
}
