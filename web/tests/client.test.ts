import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { GatewayClient, type ClientOptions } from '../src/gateway/client';
import { NoAnswerError, RequestError } from '../src/gateway/errors';

/** A WebSocket whose other end is the test. */
class FakeSocket {
  static readonly OPEN = 1;
  static made: FakeSocket[] = [];
  readyState = 1;
  sent: Record<string, unknown>[] = [];
  onmessage: (event: { data: string }) => void = () => undefined;
  onclose: (event: { reason: string }) => void = () => undefined;

  constructor(readonly url: URL) {
    FakeSocket.made.push(this);
  }

  send(data: string): void {
    this.sent.push(JSON.parse(data) as Record<string, unknown>);
  }

  close(): void {
    this.readyState = 3;
    this.onclose({ reason: '' });
  }

  receive(frame: object): void {
    this.onmessage({ data: JSON.stringify(frame) });
  }
}

const HELLO = { policy: { tickIntervalMs: 30_000 }, server: {}, features: {}, snapshot: {} };

function options(): ClientOptions {
  return {
    getSecret: () => 's',
    getScopes: () => ['operator.read'],
    onTime: vi.fn(),
    onOpen: vi.fn(),
    onEvent: vi.fn(),
    onGap: vi.fn(),
    onClose: vi.fn(),
    onWaiting: vi.fn(),
    onRefused: vi.fn(),
  };
}

async function opened(given: ClientOptions): Promise<{ client: GatewayClient; socket: FakeSocket }> {
  const client = new GatewayClient(given);
  client.connect();
  const socket = FakeSocket.made.at(-1);
  if (!socket) throw new Error('no socket');
  socket.receive({ type: 'event', event: 'connect.challenge', payload: { nonce: 'n', ts: 1 } });
  await vi.waitFor(() => expect(socket.sent).toHaveLength(1));
  socket.receive({ type: 'res', id: '1', ok: true, payload: HELLO });
  await vi.waitFor(() => expect(given.onOpen).toHaveBeenCalled());
  return { client, socket };
}

beforeEach(() => {
  FakeSocket.made = [];
  vi.stubGlobal('WebSocket', FakeSocket);
  vi.stubGlobal('isSecureContext', false); // no key is made: the gateway would refuse
});

afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

describe('GatewayClient', () => {
  it('connects to where the page came from, and sends no secret over plain http', async () => {
    const { socket } = await opened(options());
    expect(socket.url.host).toBe(location.host);
    expect(JSON.stringify(socket.sent)).not.toContain('"s"');
  });

  it('tells the time of the gateway when it connects', async () => {
    const given = options();
    await opened(given);
    expect(given.onTime).toHaveBeenCalledExactlyOnceWith(1);
  });

  it('answers calls by their id', async () => {
    const { client, socket } = await opened(options());
    const first = client.call('health', {});
    const second = client.call('status', {});
    socket.receive({ type: 'res', id: '3', ok: false, error: { code: 'FORBIDDEN', message: 'missing scope: operator.admin' } });
    socket.receive({ type: 'res', id: '2', ok: true, payload: { ok: true } });
    await expect(first).resolves.toEqual({ ok: true });
    const error: unknown = await second.catch((failure: unknown) => failure);
    expect(error).toBeInstanceOf(RequestError);
    expect((error as RequestError).missingScope).toBe('operator.admin');
  });

  it('reports a gap in the numbers of events', async () => {
    const given = options();
    const { socket } = await opened(given);
    socket.receive({ type: 'event', event: 'tick', payload: { ts: 1 }, seq: 4 });
    socket.receive({ type: 'event', event: 'tick', payload: { ts: 2 }, seq: 5 });
    expect(given.onGap).not.toHaveBeenCalled();
    socket.receive({ type: 'event', event: 'tick', payload: { ts: 3 }, seq: 9 });
    expect(given.onGap).toHaveBeenCalledOnce();
    expect(given.onEvent).toHaveBeenCalledTimes(3);
  });

  it('rejects what was asked when the connection is lost, and tries again', async () => {
    const given = options();
    const { client, socket } = await opened(given);
    const asked = client.call('health', {});
    socket.close();
    await expect(asked).rejects.toBeInstanceOf(NoAnswerError);
    expect(given.onClose).toHaveBeenCalledOnce();
    expect(given.onWaiting).toHaveBeenCalledOnce();
    client.connect();
    expect(FakeSocket.made).toHaveLength(2);
  });

  it('gives up an attempt to connect that is not answered', () => {
    vi.useFakeTimers();
    const given = options();
    new GatewayClient(given).connect();
    vi.advanceTimersByTime(14_000);
    expect(given.onWaiting).not.toHaveBeenCalled();
    vi.advanceTimersByTime(2_000);
    expect(given.onWaiting).toHaveBeenCalledOnce();
    vi.advanceTimersByTime(1_000);
    expect(FakeSocket.made).toHaveLength(2);
  });

  it('finds a dead connection when the network is back', async () => {
    const given = options();
    const { client, socket } = await opened(given);
    vi.useFakeTimers({ now: Date.now() + 1_000 });
    dispatchEvent(new Event('online'));
    vi.advanceTimersByTime(4_000);
    expect(client.isOpen).toBe(true);
    vi.advanceTimersByTime(2_000);
    expect(client.isOpen).toBe(false);
    expect(socket.readyState).toBe(3);
    expect(given.onClose).toHaveBeenCalledOnce();
  });

  it('keeps a connection that is slow to answer one request', async () => {
    const given = options();
    const { client, socket } = await opened(given);
    vi.useFakeTimers({ now: Date.now() + 1_000 });
    const asked = client.call('health', {}, 5_000).catch((failure: unknown) => failure);
    vi.advanceTimersByTime(1_000);
    socket.receive({ type: 'event', event: 'tick', payload: { ts: 1 }, seq: 1 });
    vi.advanceTimersByTime(5_000);
    expect(await asked).toBeInstanceOf(NoAnswerError);
    expect(client.isOpen).toBe(true);
  });

  it('ends the connection that is open before it makes another', async () => {
    const given = options();
    const { client, socket } = await opened(given);
    const asked = client.call('health', {});
    client.connect();
    await expect(asked).rejects.toBeInstanceOf(NoAnswerError);
    expect(socket.readyState).toBe(3);
    expect(given.onClose).toHaveBeenCalledOnce();
    expect(given.onWaiting).not.toHaveBeenCalled();
  });

  it('ignores what is no frame', async () => {
    const given = options();
    const { socket } = await opened(given);
    for (const data of ['', 'null', '[]', '{"type":"other"}', '{']) socket.onmessage({ data });
    expect(given.onEvent).not.toHaveBeenCalled();
  });
});
