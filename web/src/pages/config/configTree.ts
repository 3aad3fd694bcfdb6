/** Reading and changing a tree of settings. Pure: every change returns a new tree. */

export type Tree = Readonly<Record<string, unknown>>;
export type Path = readonly (string | number)[];

/** What the gateway shows instead of a secret; sent back, it stands for the stored value. */
export const REDACTED = '__OPENCLAW_REDACTED__';

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function getAt(tree: unknown, path: Path): unknown {
  let found = tree;
  for (const step of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, step)) return undefined;
    found = (found as Record<string | number, unknown>)[step];
  }
  return found;
}

/** Return the tree with a value; objects on the way to it are made, and undefined removes it. */
export function setAt(tree: Tree, path: Path, value: unknown): Tree {
  return setValue(tree, path, value) as Tree;
}

function setValue(tree: unknown, path: Path, value: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  if (typeof step === 'number') {
    const list: unknown[] = Array.isArray(tree) ? [...(tree as unknown[])] : [];
    const inner = setValue(list[step], rest, value);
    if (inner === undefined) list.splice(step, 1);
    else list[step] = inner;
    return list;
  }
  const own = isObject(tree) ? tree : {};
  const inner = setValue(Object.hasOwn(own, step) ? own[step] : undefined, rest, value);
  const others = Object.entries(own).filter(([name]) => name !== step);
  if (inner === undefined) return Object.fromEntries(others);
  if (Object.hasOwn(own, step)) return Object.fromEntries(Object.entries(own).map(([name, old]) => [name, name === step ? inner : old]));
  return Object.fromEntries([...others, [step, inner]]);
}

export function isSame(one: unknown, other: unknown): boolean {
  if (one === other) return true;
  if (Array.isArray(one) && Array.isArray(other))
    return one.length === other.length && one.every((value, at) => isSame(value, other[at]));
  if (!isObject(one) || !isObject(other)) return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => Object.hasOwn(other, name) && isSame(one[name], other[name]));
}

export interface TreeChange {
  path: Path;
  /** Undefined removes the value. */
  value: unknown;
}

/** Return what makes one tree of the other; lists are replaced as a whole. */
export function findChanges(before: unknown, after: unknown, path: Path = []): TreeChange[] {
  if (isSame(before, after)) return [];
  if (!isObject(before) || !isObject(after)) return [{ path, value: after }];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.flatMap((name) =>
    findChanges(
      Object.hasOwn(before, name) ? before[name] : undefined,
      Object.hasOwn(after, name) ? after[name] : undefined,
      [...path, name],
    ),
  );
}

/** Make changes again in a tree that was changed meanwhile. */
export function replay(tree: Tree, changes: readonly TreeChange[]): Tree {
  return changes.reduce((found, { path, value }) => setAt(found, path, value), tree);
}

export function formatTree(tree: unknown): string {
  return `${JSON.stringify(tree, null, 2)}\n`;
}

export function formatPath(path: Path): string {
  return path.map((step, at) => (typeof step === 'number' ? `[${step}]` : at ? `.${step}` : step)).join('');
}
