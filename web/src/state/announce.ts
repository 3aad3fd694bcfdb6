import { signal } from '@preact/signals';

/** What screen readers read out next. */
export const announcement = signal('');

const MAX_CHARS = 1_000;

export function announce(words: string): void {
  // The same words twice would be read once: a changed space makes them new.
  const shown = words.slice(0, MAX_CHARS);
  announcement.value = announcement.peek() === shown ? `${shown}\u00a0` : shown;
}
