import type { EventName, EventPayloads, MethodName, MethodParams } from '../protocol/protocol.generated';
import type { Hello, ResultOf } from '../protocol/results';
import { randomId, signDevice } from './device';
import { NoAnswerError, NoDeviceKeyError, RequestError } from './errors';
import { parseFrame, type EventFrame, type ResponseFrame } from './frames';

const PROTOCOL = 4;
const CLIENT = { id: 'openclaw-control-ui', mode: 'ui', version: 'web' };
const ROLE = 'operator';
const CAPS = ['tool-events', 'tool-results'];
const FIRST_WAIT_MS = 500;
const MAX_WAIT_MS = 15_000;
const ANSWER_MS = 30_000;
const CONNECT_MS = 15_000; // a browser would wait for minutes
const PROBE_MS = 5_000;

type Timer = ReturnType<typeof setTimeout>;

interface Pending {
  resolve: (payload: unknown) => void;
  reject: (error: Error) => void;
  timer: Timer;
}

/** What a client is given; `getSecret` and `getScopes` are called at each attempt to connect. */
export interface ClientOptions {
  getSecret: () => string;
  getScopes: () => readonly string[];
  /** The time of the gateway, in milliseconds, which it sent just now. */
  onTime: (nowMs: number) => void;
  onOpen: (hello: Hello) => void;
  onEvent: <E extends EventName>(event: E, payload: EventPayloads[E]) => void;
  /** Events were missed: what they changed has to be loaded again. */
  onGap: () => void;
  onClose: () => void;
  onWaiting: (untilMs: number, reason: string) => void;
  /** The gateway refused the connection; it stays closed until `connect()`. */
  onRefused: (error: RequestError) => void;
}

/**
 * A connection to the gateway that this page came from, and to no other, which comes back by itself.
 */
export class GatewayClient {
  readonly #options: ClientOptions;
  readonly #pending = new Map<string, Pending>();
  readonly #instance = randomId();
  #socket: WebSocket | null = null;
  #lastId = 0;
  #attempts = 0;
  #retryTimer: Timer | undefined;
  #connectTimer: Timer | undefined;
  #watchdog: Timer | undefined;
  #seq: number | null = null;
  #receivedAt = 0;

  constructor(options: ClientOptions) {
    this.#options = options;
    const check = (): void => {
      if (this.#retryTimer) this.connect();
      // The network or the device was away: the connection may be dead without a sign of it.
      else if (this.isOpen) this.#request('last-heartbeat', {}, PROBE_MS).catch(() => undefined);
    };
    addEventListener('online', check);
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) check();
    });
  }

  get isOpen(): boolean {
    return this.#watchdog !== undefined;
  }

  connect(): void {
    clearTimeout(this.#retryTimer);
    this.#retryTimer = undefined;
    this.#leave();
    const socket = new WebSocket(socketAddress());
    this.#socket = socket;
    this.#connectTimer = setTimeout(() => this.#abandon(socket), CONNECT_MS);
    let refusal: RequestError | null = null;
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      this.#receivedAt = Date.now();
      const frame = parseFrame(data);
      if (frame?.type === 'res') this.#handleResponse(frame);
      else if (frame?.event === 'connect.challenge')
        this.#handshake(socket, frame.payload ?? {}).catch((error: unknown) => {
          if (error instanceof RequestError) refusal = error;
          socket.close();
        });
      else if (frame && this.isOpen) this.#handleEvent(frame);
    };
    socket.onclose = ({ reason }) => {
      if (socket !== this.#socket) return;
      this.#leave();
      if (refusal) this.#options.onRefused(refusal);
      else this.#scheduleRetry(reason);
    };
  }

  /** Send a request; rejects with RequestError or, without an answer, with NoAnswerError. */
  call<M extends MethodName>(
    method: M,
    params: MethodParams[M],
    timeoutMs = ANSWER_MS,
  ): Promise<ResultOf<M>> {
    return this.#request(method, params, timeoutMs) as Promise<ResultOf<M>>;
  }

  #request(method: string, params: unknown, timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new NoAnswerError('not connected to the gateway', { wasSent: false }));
        return;
      }
      const id = String(++this.#lastId);
      const socket = this.#socket;
      const sentAt = Date.now();
      const timer = setTimeout(() => {
        this.#pending.delete(id);
        reject(new NoAnswerError(`no answer to ${method} within ${Math.round(timeoutMs / 1000)} s`, { wasSent: true }));
        if (this.#receivedAt < sentAt) this.#abandon(socket);
      }, timeoutMs);
      this.#pending.set(id, { resolve, reject, timer });
      socket.send(JSON.stringify({ type: 'req', id, method, params }));
    });
  }

  async #handshake(socket: WebSocket, challenge: Record<string, unknown>): Promise<void> {
    if (typeof challenge.ts === 'number') this.#options.onTime(challenge.ts);
    const isInsecure = !globalThis.isSecureContext;
    // Over plain HTTP the network could read a secret: it is not sent. A proxy that has
    // authenticated the user needs none.
    const secret = isInsecure ? '' : this.#options.getSecret();
    const scopes = this.#options.getScopes();
    const device = isInsecure
      ? null
      : await signDevice({
          nonce: String(challenge.nonce),
          signedAt: Number(challenge.ts) || Date.now(),
          token: secret,
          scopes,
          clientId: CLIENT.id,
          mode: CLIENT.mode,
          role: ROLE,
        });
    if (!isInsecure && !device) throw new NoDeviceKeyError(false);
    if (socket !== this.#socket) return;
    const params = {
      minProtocol: PROTOCOL,
      maxProtocol: PROTOCOL,
      client: { ...CLIENT, displayName: 'Control UI', platform: navigator.platform || 'web', instanceId: this.#instance },
      role: ROLE,
      scopes,
      caps: CAPS,
      ...(secret ? { auth: { token: secret, password: secret } } : {}),
      ...(device ? { device } : {}),
      locale: navigator.language,
      userAgent: navigator.userAgent,
    };
    const hello = await this.#request('connect', params, ANSWER_MS).catch((error: unknown) => {
      throw isInsecure && error instanceof RequestError ? new NoDeviceKeyError(true, error) : error;
    });
    this.#handleHello(socket, hello as Hello);
  }

  #handleHello(socket: WebSocket, hello: Hello): void {
    clearTimeout(this.#connectTimer);
    this.#attempts = 0;
    this.#seq = null;
    const tickMs = hello.policy.tickIntervalMs || 30_000;
    this.#watchdog = setInterval(() => {
      if (Date.now() - this.#receivedAt > 2.5 * tickMs) this.#abandon(socket);
    }, tickMs);
    this.#options.onOpen(hello);
  }

  #handleResponse({ id, ok, payload, error }: ResponseFrame): void {
    const pending = this.#pending.get(id);
    if (!pending) return;
    this.#pending.delete(id);
    clearTimeout(pending.timer);
    if (ok) pending.resolve(payload ?? {});
    else pending.reject(new RequestError(error, payload));
  }

  #handleEvent({ event, payload, seq }: EventFrame): void {
    if (typeof seq === 'number') {
      const hasGap = this.#seq !== null && seq > this.#seq + 1;
      this.#seq = seq;
      if (hasGap) this.#options.onGap();
    }
    this.#options.onEvent(event as EventName, (payload ?? {}));
  }

  /** Give up a connection whose other end is silent; to close it could take as long. */
  #abandon(socket: WebSocket): void {
    if (socket !== this.#socket) return;
    this.#leave();
    this.#scheduleRetry('');
  }

  /** End the connection, and all that belongs to it. */
  #leave(): void {
    const [socket, wasOpen] = [this.#socket, this.isOpen];
    this.#socket = null;
    socket?.close();
    clearTimeout(this.#connectTimer);
    clearInterval(this.#watchdog);
    this.#watchdog = undefined;
    for (const { reject, timer } of this.#pending.values()) {
      clearTimeout(timer);
      reject(new NoAnswerError('the connection was lost', { wasSent: true }));
    }
    this.#pending.clear();
    if (wasOpen) this.#options.onClose();
  }

  #scheduleRetry(reason: string): void {
    const limitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#attempts++);
    const waitMs = limitMs * (0.5 + Math.random() / 2); // so that tabs do not come all at once
    this.#retryTimer = setTimeout(() => this.connect(), waitMs);
    this.#options.onWaiting(Date.now() + waitMs, reason);
  }
}

/** Return the address of the gateway: the folder that this page is in. */
function socketAddress(): URL {
  const url = new URL('./', location.origin + location.pathname);
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}
