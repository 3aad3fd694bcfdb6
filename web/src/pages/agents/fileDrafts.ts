/** Files that were edited and not saved: they stay while the person looks at something else. */

import { signal } from '@preact/signals';
import { setUnsaved } from '../../state/unsaved';

const drafts = signal<ReadonlyMap<string, string>>(new Map());

const keyOf = (agentId: string, name: string): string => `${agentId}:${name}`;

/** Return what was written; null for a file that is not edited. */
export function findFileDraft(agentId: string, name: string): string | null {
  return drafts.value.get(keyOf(agentId, name)) ?? null;
}

/** Store what was written; null forgets it. */
export function storeFileDraft(agentId: string, name: string, text: string | null): void {
  const others = [...drafts.value].filter(([key]) => key !== keyOf(agentId, name));
  drafts.value = new Map(text === null ? others : [...others, [keyOf(agentId, name), text]]);
  setUnsaved('files', drafts.value.size > 0);
}
