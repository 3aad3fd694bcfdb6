/** Sub-agents as a tree: each below the one that started it. */

import type { SubagentRow } from '../../protocol/agent-results';

export interface SubagentNode {
  row: SubagentRow;
  children: SubagentNode[];
}

export interface SubagentRoot {
  /** The session that started them. */
  sessionKey: string;
  children: SubagentNode[];
}

/** Return the trees by the session that started them; one whose parent is not listed is a root. */
export function buildTree(rows: readonly SubagentRow[]): SubagentRoot[] {
  const nodes = new Map<string, SubagentNode>();
  for (const row of rows) nodes.set(row.sessionKey, { row, children: [] });
  const roots = new Map<string, SubagentNode[]>();
  for (const node of nodes.values()) {
    const requester = node.row.requesterSessionKey ?? '';
    const parent = requester === node.row.sessionKey ? undefined : nodes.get(requester);
    if (parent && !contains(node, parent)) parent.children.push(node);
    else roots.set(requester, [...(roots.get(requester) ?? []), node]);
  }
  return [...roots].map(([sessionKey, children]) => ({ sessionKey, children }));
}

/** Return whether a node is the other one or above it: rows that refer to each other are no tree. */
function contains(node: SubagentNode, other: SubagentNode): boolean {
  return node === other || node.children.some((child) => contains(child, other));
}
