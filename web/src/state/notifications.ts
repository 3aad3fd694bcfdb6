/** Notifications of the browser, which a person turns on in the list of shortcuts and settings. */

import { signal } from '@preact/signals';

type Permission = 'default' | 'granted' | 'denied' | 'unsupported';

const isSupported = 'Notification' in globalThis && globalThis.isSecureContext;

export const permission = signal<Permission>(isSupported ? Notification.permission : 'unsupported');

export async function requestNotifications(): Promise<void> {
  if (isSupported) permission.value = await Notification.requestPermission();
}

/** Notify a person who looks at something else, once for an id; a click opens the page. The text has no secrets. */
export function notify(text: string, path: string, id: string): void {
  if (permission.value !== 'granted' || document.hasFocus()) return;
  let shown: Notification;
  try {
    shown = new Notification('Homarus', { body: text, tag: `${path}:${id}` });
  } catch {
    permission.value = 'unsupported'; // a phone that shows only those of a service worker
    return;
  }
  shown.onclick = () => {
    focus();
    dispatchEvent(new CustomEvent('homarus-open', { detail: path }));
    shown.close();
  };
}
