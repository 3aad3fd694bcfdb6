import { Fragment, h, type ComponentChild, type JSX } from 'preact';
import { useLayoutEffect, useReducer, useRef } from 'preact/hooks';
import { drawBudget } from '../state/drawBudget';

interface Props {
  nodes: readonly ComponentChild[];
  /** What it takes to draw each node, in characters. */
  costs: readonly number[];
  /** The element around the nodes; none by default. */
  tag?: string;
  attrs?: Readonly<Record<string, unknown>>;
}

/** A list of nodes that is drawn as fast as the frames allow. */
export function Gradual({ nodes, costs, tag, attrs }: Props): JSX.Element {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const drawn = useRef(0);
  let count = Math.min(drawn.current, nodes.length);
  while (count < nodes.length && drawBudget.take(costs[count] ?? 0)) count++;
  drawn.current = count;
  const isComplete = count === nodes.length;
  const nextCost = costs[count] ?? 0;
  // After each time: one that found no room waits again.
  useLayoutEffect(() => (isComplete ? undefined : drawBudget.wait(nextCost, () => redraw(null))));
  return h(tag ?? Fragment, attrs ?? null, ...(isComplete ? nodes : nodes.slice(0, count)));
}
