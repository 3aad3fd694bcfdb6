/** What waits and whose notice was closed, for as long as the tab is open: a reload does not show it again. */

import { signal } from '@preact/signals';

const NAME = 'closed-notices';
const MAX_KEPT = 100; // what waits was answered or has expired long before

export const closedNotices = signal<ReadonlySet<string>>(new Set(load()));

export function closeNotices(ids: readonly string[]): void {
  const kept = [...closedNotices.value, ...ids].slice(-MAX_KEPT);
  closedNotices.value = new Set(kept);
  try {
    sessionStorage.setItem(NAME, JSON.stringify(kept));
  } catch {
    sessionStorage.removeItem(NAME); // the storage is full: it lasts as long as the page
  }
}

function load(): string[] {
  try {
    const stored: unknown = JSON.parse(sessionStorage.getItem(NAME) ?? '[]');
    return Array.isArray(stored) ? stored.filter((id) => typeof id === 'string') : [];
  } catch {
    sessionStorage.removeItem(NAME);
    return [];
  }
}
