/** Shortcuts of the keyboard: registered where they work, and listed for the person. */

import { signal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';

export interface Shortcut {
  /** Such as `Alt+N` or `?`. */
  keys: string;
  label: string;
  run: () => void;
}

export const shortcuts = signal<readonly Shortcut[]>([]);
/** Whether the list of shortcuts is shown. */
export const isListOpen = signal(false);

/** Offer a shortcut while the component is there, and while it is enabled. */
export function useShortcut(keys: string, label: string, run: () => void, isEnabled = true): void {
  const latest = useRef(run);
  latest.current = run;
  // Before the page is drawn: a key that is pressed at once must not reach the shortcut behind.
  useLayoutEffect(() => {
    if (!isEnabled) return undefined;
    const shortcut = { keys, label, run: () => latest.current() };
    shortcuts.value = [...shortcuts.value, shortcut];
    return () => {
      shortcuts.value = shortcuts.value.filter((other) => other !== shortcut);
    };
  }, [keys, label, isEnabled]);
}

export function startShortcuts(): void {
  addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return; // its keys are its own
    const found = shortcuts.value.findLast(({ keys }) => matches(event, keys));
    if (!found || (isTyping(event.target) && !event.altKey && !event.ctrlKey && event.key !== 'Escape')) return;
    event.preventDefault();
    found.run();
  });
}

function matches(event: KeyboardEvent, keys: string): boolean {
  const parts = keys.toLowerCase().split('+');
  const key = parts.pop();
  const [alt, ctrl] = [parts.includes('alt'), parts.includes('ctrl')];
  // Alt changes the character on some keyboards: there the key itself counts.
  const pressed = alt ? event.code.replace(/^(?:Key|Digit)/, '') : event.key;
  return pressed.toLowerCase() === key && event.altKey === alt && (event.ctrlKey || event.metaKey) === ctrl;
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (/^(?:INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.isContentEditable);
}
