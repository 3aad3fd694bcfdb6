import { afterEach, describe, expect, it, vi } from 'vitest';
import type * as Notifications from '../src/state/notifications';

afterEach(() => {
  vi.unstubAllGlobals();
});

/** Load the module in a browser that calls this for a new notification. */
async function load(make: (title: string, options: NotificationOptions) => void): Promise<typeof Notifications> {
  class FakeNotification {
    static readonly permission = 'granted';
    onclick = null;
    constructor(title: string, options: NotificationOptions) {
      make(title, options);
    }
  }
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('Notification', FakeNotification);
  vi.spyOn(document, 'hasFocus').mockReturnValue(false);
  vi.resetModules();
  return import('../src/state/notifications');
}

describe('notify', () => {
  it('shows one for each that waits', async () => {
    const tags: (string | undefined)[] = [];
    const { notify } = await load((_, { tag }) => tags.push(tag));
    notify('A tool call needs your approval.', 'approvals', 'one');
    notify('A tool call needs your approval.', 'approvals', 'two');
    expect(tags).toEqual(['approvals:one', 'approvals:two']);
  });

  it('goes without where the browser has none for a page', async () => {
    const { notify, permission } = await load(() => {
      throw new TypeError('Illegal constructor');
    });
    notify('A tool call needs your approval.', 'approvals', 'one');
    expect(permission.value).toBe('unsupported');
  });
});
