/** Make VNodes. Every text is a text node: nothing that a model or a tool writes becomes markup. */

import { h, isValidElement, type ComponentChild, type JSX } from 'preact';

export type Nodes = ComponentChild[];

/** Return an element with these nodes; neighbouring strings become one text. */
export function make(name: string, props: Record<string, unknown> | null, nodes: Nodes): JSX.Element {
  const joined: Nodes = [];
  for (const node of nodes) {
    const last = joined.at(-1);
    if (typeof node === 'string' && typeof last === 'string') joined[joined.length - 1] = last + node;
    else joined.push(node);
  }
  return h(name, props, ...joined);
}

/**
 * Return the attribute by which a block is read from the side that its first letter asks for. What is
 * inside of another block has none: the outer one would not look at its letters.
 */
export function direction(depth: number): { dir?: 'auto' } {
  return depth === 0 ? { dir: 'auto' } : {};
}

/** Return the text of a node and of what is in it. */
export function textOf(node: ComponentChild): string {
  if (typeof node === 'string') return node;
  if (!isValidElement(node)) return '';
  const { children } = node.props as { children?: ComponentChild | ComponentChild[] };
  return (Array.isArray(children) ? children : [children]).map(textOf).join('');
}

export function holdsLink(node: ComponentChild): boolean {
  if (!isValidElement(node)) return false;
  if (node.type === 'a') return true;
  const { children } = node.props as { children?: ComponentChild | ComponentChild[] };
  return (Array.isArray(children) ? children : [children]).some(holdsLink);
}
