import { signal } from '@preact/signals';

const NARROW = matchMedia('(max-width: 760px)');

/** Whether the sidebar is open on a phone, where it covers the page. */
export const isDrawerOpen = signal(false);
let opener: EventTarget | null = null;

/** Open the sidebar by a button, which gets the focus back. */
export function openDrawer({ currentTarget }: Event): void {
  opener = currentTarget;
  isDrawerOpen.value = true;
}

export function focusDrawerOpener(): void {
  if (opener instanceof HTMLElement) opener.focus();
}

// On a wide screen it is beside the page and covers nothing.
NARROW.addEventListener('change', () => {
  isDrawerOpen.value = false;
});
