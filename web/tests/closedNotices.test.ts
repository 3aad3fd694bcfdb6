import { beforeEach, describe, expect, it, vi } from 'vitest';
import type * as Notices from '../src/state/closedNotices';

/** Load the module as a page does that was just opened. */
async function open(): Promise<typeof Notices> {
  vi.resetModules();
  return await import('../src/state/closedNotices');
}

describe('closed notices', () => {
  beforeEach(() => sessionStorage.clear());

  it('stay closed after a reload', async () => {
    const before = await open();
    before.closeNotices(['one', 'two']);
    expect([...(await open()).closedNotices.value]).toEqual(['one', 'two']);
  });

  it('are forgotten when there are too many', async () => {
    const { closedNotices, closeNotices } = await open();
    for (let at = 0; at < 150; at++) closeNotices([String(at)]);
    expect(closedNotices.value.size).toBe(100);
    expect(closedNotices.value.has('149')).toBe(true);
  });

  it.each(['{', '{"a":1}', '[1,null]'])('are none when %s is stored', async (stored) => {
    sessionStorage.setItem('closed-notices', stored);
    expect((await open()).closedNotices.value.size).toBe(0);
  });
});
