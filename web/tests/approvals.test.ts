import { signal } from '@preact/signals';
import { beforeEach, describe, expect, it, vi } from 'vitest';

const gateway = vi.hoisted(() => ({
  listeners: new Map<string, (payload: unknown) => void>(),
  answers: new Map<string, { resolve: (found: unknown) => void; reject: (error: Error) => void }>(),
  open: (): void => undefined,
}));

vi.mock('../src/gateway/gateway', () => ({
  connection: signal({ state: 'open' }),
  may: () => true,
  call: (method: string) =>
    new Promise((resolve, reject) => {
      gateway.answers.set(method, { resolve, reject });
    }),
  onEvent: (event: string, listener: (payload: unknown) => void) => gateway.listeners.set(event, listener),
  onOpen: (listener: () => void) => {
    gateway.open = listener;
  },
}));

const { gatewayNow, setGatewayTime } = await import('../src/gateway/clock');
const { isPendingLoaded, pending, pendingError, startApprovals } = await import('../src/state/approvals');

const approval = (id: string): object => ({ id, request: { toolCallId: id }, expiresAtMs: gatewayNow() + 60_000 });
const emit = (event: string, payload: unknown): void => gateway.listeners.get(event)?.(payload);
const ids = (): string[] => pending.value.map(({ id }) => id);

/** Answer the three lists, the approvals first. */
async function answer(approvals: object[]): Promise<void> {
  gateway.answers.get('exec.approval.list')?.resolve(approvals);
  await Promise.resolve();
  gateway.answers.get('question.list')?.resolve({ questions: [] });
  gateway.answers.get('device.pair.list')?.resolve({ pending: [] });
  await vi.waitFor(() => expect(isPendingLoaded.value).toBe(true));
}

startApprovals();

describe('pending approvals', () => {
  beforeEach(async () => {
    gateway.open();
    await answer([approval('old')]);
    isPendingLoaded.value = false;
  });

  it('keep one that is requested before the other lists are loaded', async () => {
    gateway.open();
    gateway.answers.get('exec.approval.list')?.resolve([approval('old')]);
    await Promise.resolve();
    emit('exec.approval.requested', approval('new'));
    await answer([]);
    expect(ids()).toEqual(['old', 'new']);
  });

  it('do not bring back one that was answered while they were loaded', async () => {
    gateway.open();
    emit('exec.approval.resolved', { id: 'old' });
    await answer([approval('old')]);
    expect(ids()).toEqual([]);
  });

  it('stay until the lists are loaded again, and then are those of the gateway', async () => {
    gateway.open();
    expect(ids()).toEqual(['old']);
    await answer([approval('next')]);
    expect(ids()).toEqual(['next']);
  });

  it('stay when one of the lists fails, with the reason', async () => {
    gateway.open();
    gateway.answers.get('exec.approval.list')?.resolve([approval('old'), approval('new')]);
    gateway.answers.get('question.list')?.reject(new Error('the store is busy'));
    gateway.answers.get('device.pair.list')?.resolve({ pending: [] });
    await vi.waitFor(() => expect(pendingError.value).toEqual(new Error('the store is busy')));
    expect(ids()).toEqual(['old', 'new']);
    expect(isPendingLoaded.value).toBe(false);
  });

  it.each([-3_600_000, 3_600_000])('expire by the clock of the gateway, which is %d ms ahead', async (aheadMs) => {
    vi.useFakeTimers();
    try {
      startApprovals();
      emit('tick', { ts: Date.now() + aheadMs });
      gateway.open();
      await answer([approval('listed')]);
      emit('exec.approval.requested', approval('asked'));
      vi.advanceTimersByTime(58_000);
      expect(ids()).toEqual(['listed', 'asked']);
      vi.advanceTimersByTime(3_000);
      expect(ids()).toEqual([]);
    } finally {
      vi.useRealTimers();
      setGatewayTime(Date.now());
    }
  });

  it('keep the time of the gateway when a tick has none', () => {
    emit('tick', {});
    expect(Math.abs(gatewayNow() - Date.now())).toBeLessThan(1_000);
  });
});
