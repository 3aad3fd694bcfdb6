import { signal } from '@preact/signals';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import type * as Outbox from '../src/pages/chat/outbox';

const call = vi.hoisted(() => vi.fn());

vi.mock('../src/gateway/gateway', () => ({ call, isConnected: signal(true), onOpen: (listener: () => void) => listener() }));

const entry = { runId: 'r1', sessionKey: 'agent:main:main', text: 'Hello', attachments: [], error: '', atMs: 1 };

/** Load the module as a page does that is loaded again with this in its storage. */
async function reloadWith(state: string): Promise<typeof Outbox> {
  sessionStorage.setItem('outbox', JSON.stringify([{ ...entry, state }]));
  vi.resetModules();
  return import('../src/pages/chat/outbox');
}

beforeEach(() => {
  call.mockReset().mockResolvedValue({ runId: 'r1', status: 'started' });
});

describe('a message of a page that is loaded again', () => {
  it.each(['waiting', 'sending'])('is sent under its key if it was %s', async (state) => {
    const { outgoing } = await reloadWith(state);
    await vi.waitFor(() => expect(outgoing.value[0]?.state).toBe('sent'));
    expect(call).toHaveBeenCalledExactlyOnceWith('chat.send', expect.objectContaining({ idempotencyKey: 'r1', message: 'Hello' }));
  });

  it.each(['sent', 'refused'])('is not sent again if it was %s', async (state) => {
    const { outgoing } = await reloadWith(state);
    await Promise.resolve();
    expect(call).not.toHaveBeenCalled();
    expect(outgoing.value[0]?.state).toBe(state);
  });

  it('is sent under a new key if the gateway had dropped it', async () => {
    const { markDropped, outgoing, sendAgain } = await reloadWith('sent');
    markDropped('r1', 'Stopped');
    expect(outgoing.value[0]).toMatchObject({ state: 'refused', error: 'Stopped', text: 'Hello' });
    sendAgain(outgoing.value[0]?.runId ?? '');
    await vi.waitFor(() => expect(outgoing.value[0]?.state).toBe('sent'));
    expect(call).toHaveBeenCalledExactlyOnceWith('chat.send', expect.objectContaining({ message: 'Hello' }));
    expect(call).not.toHaveBeenCalledWith('chat.send', expect.objectContaining({ idempotencyKey: 'r1' }));
  });
});
