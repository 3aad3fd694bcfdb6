// The gateway's protocol 3: one WebSocket to where this page came from, and to nowhere else.
// No address is ever taken from the page's own address.

const PROTOCOL = 3;
const CLIENT = { id: 'webchat-ui', mode: 'webchat', version: 'web' };
const ROLE = 'operator';
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const ANSWER_MS = 30_000;

/** What the gateway answered instead of doing what was asked. */
export class Refused extends Error {
  constructor(error, payload) {
    super(error?.message || 'the gateway refused');
    this.code = error?.code || '';
    this.details = error?.details || {};
    this.retryAfterMs = error?.retryAfterMs || 0; // when it is worth another try
    this.payload = payload || {};
  }
}

/** This browser cannot prove who it is: the page came over plain http, or the browser is old. */
export class NoDeviceKeyError extends Refused {
  constructor(isInsecure, refusal) {
    super(refusal ?? { message: 'this browser cannot make a device key' });
    this.isInsecure = isInsecure;
  }
}

/**
 * A connection that comes back by itself. `secret()` and `scopes()` are called at each attempt;
 * `on` is {open(hello), event(name, payload), lost(), waiting(afterMs, why), refused(error),
 * missed()}. After `refused` it stays closed until `connect()`.
 */
export class Wire {
  #on;
  #secret;
  #scopes;
  #socket = null;
  #asked = new Map(); // id → {resolve, reject, timer}
  #lastId = 0;
  #tries = 0;
  #timer = 0;
  #seq = null;
  #heardAt = 0;
  #watch = 0;
  #instance = randomId();

  constructor({ secret, scopes, on }) {
    this.#secret = secret;
    this.#scopes = scopes;
    this.#on = on;
    const hurry = () => this.#timer && this.connect();
    addEventListener('online', hurry);
    document.addEventListener('visibilitychange', () => document.hidden || hurry());
  }

  get isOpen() {
    return this.#watch !== 0;
  }

  connect() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#socket?.close();
    const url = new URL('./', location.origin + location.pathname);
    url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    const socket = new WebSocket(url);
    this.#socket = socket;
    let refusal = null;
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      this.#heardAt = Date.now();
      const frame = parse(data);
      if (frame?.type === 'res') this.#answer(frame);
      else if (frame?.type !== 'event') return;
      else if (frame.event === 'connect.challenge')
        this.#greet(socket, frame.payload).catch((error) => {
          refusal = error;
          socket.close();
        });
      else if (this.isOpen) this.#hear(frame);
    };
    socket.onclose = ({ reason }) => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      this.#end();
      if (refusal instanceof Refused) this.#on.refused(refusal);
      else this.#again(reason);
    };
  }

  /** Ask, and have the payload of the answer; a Refused when it is no. */
  call(method, params) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject(new Error('not connected'));
        return;
      }
      const id = String(++this.#lastId);
      const timer = setTimeout(() => {
        this.#asked.delete(id);
        reject(new Error(`no answer to ${method}`));
      }, ANSWER_MS);
      this.#asked.set(id, { resolve, reject, timer });
      this.#socket.send(JSON.stringify({ type: 'req', id, method, params }));
    });
  }

  async #greet(socket, { nonce, ts }) {
    const isInsecure = !globalThis.isSecureContext || !globalThis.crypto?.subtle;
    // Over plain http everyone on the way could read a secret: it is not sent. A proxy that has
    // authenticated the user needs none.
    const secret = isInsecure ? '' : this.#secret();
    const scopes = this.#scopes();
    const auth = secret ? { token: secret, password: secret } : undefined;
    const device = isInsecure
      ? undefined
      : await identify({ nonce, at: ts || Date.now(), token: secret, scopes });
    if (!isInsecure && !device) throw new NoDeviceKeyError(false);
    if (socket !== this.#socket) return;
    const hello = await this.call('connect', {
      minProtocol: PROTOCOL,
      maxProtocol: PROTOCOL,
      client: { ...CLIENT, platform: navigator.platform || 'web', instanceId: this.#instance },
      role: ROLE,
      scopes,
      caps: ['tool-events'],
      auth,
      device,
      locale: navigator.language,
      userAgent: navigator.userAgent,
    }).catch((error) => {
      throw isInsecure && error instanceof Refused ? new NoDeviceKeyError(true, error) : error;
    });
    this.#tries = 0;
    this.#seq = null;
    const tickMs = hello.policy?.tickIntervalMs || 30_000;
    this.#watch = setInterval(() => {
      if (Date.now() - this.#heardAt > 2.5 * tickMs) socket.close(4000, 'tick timeout');
    }, tickMs);
    this.#on.open(hello);
  }

  #answer({ id, ok, payload, error }) {
    const asked = this.#asked.get(id);
    if (!asked) return;
    this.#asked.delete(id);
    clearTimeout(asked.timer);
    if (ok) asked.resolve(payload ?? {});
    else asked.reject(new Refused(error, payload));
  }

  #hear({ event, payload, seq }) {
    if (Number.isInteger(seq)) {
      const missed = this.#seq !== null && seq > this.#seq + 1;
      this.#seq = seq;
      if (missed) this.#on.missed();
    }
    this.#on.event(event, payload ?? {});
  }

  #end() {
    const wasOpen = this.isOpen;
    clearInterval(this.#watch);
    this.#watch = 0;
    for (const { reject, timer } of this.#asked.values()) {
      clearTimeout(timer);
      reject(new Error('the connection was lost'));
    }
    this.#asked.clear();
    if (wasOpen) this.#on.lost();
  }

  #again(why) {
    const limit = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#tries++);
    const afterMs = limit * (0.5 + Math.random() / 2); // so that tabs do not come all at once
    this.#timer = setTimeout(() => this.connect(), afterMs);
    this.#on.waiting(afterMs, why);
  }
}

/** A random id; `crypto.randomUUID` is missing where the page came over plain http. */
export function randomId() {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** This browser, proven by its key over the challenge; nothing where the browser has no keys. */
async function identify({ nonce, at, token, scopes }) {
  let keys;
  try {
    keys = await deviceKeys();
  } catch {
    return undefined; // a browser without Ed25519
  }
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey));
  const id = hex(new Uint8Array(await crypto.subtle.digest('SHA-256', raw)));
  const { id: client, mode } = CLIENT;
  const signed = ['v2', id, client, mode, ROLE, scopes.join(','), at, token, nonce].join('|');
  const signature = await crypto.subtle.sign(
    'Ed25519',
    keys.privateKey,
    new TextEncoder().encode(signed),
  );
  return {
    id,
    publicKey: base64url(raw),
    signature: base64url(new Uint8Array(signature)),
    signedAt: at,
    nonce,
  };
}

let kept = null;

/** This browser's key pair. The private half cannot be read out, not even by this page. */
async function deviceKeys() {
  if (kept) return kept;
  const made = () => crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']);
  try {
    const store = await openStore();
    kept = (await inStore(store, null)) ?? (await inStore(store, await made()));
  } catch {
    kept = await made(); // no storage here: a key for as long as the page is open
  }
  return kept;
}

function openStore() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open('homarus', 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore('keys');
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = asked.onblocked = () => reject(asked.error ?? new Error('blocked'));
  });
}

/** The stored pair, else `offered`, stored: of two tabs at once, one pair wins. */
function inStore(store, offered) {
  return new Promise((resolve, reject) => {
    const work = store.transaction('keys', offered ? 'readwrite' : 'readonly');
    const keys = work.objectStore('keys');
    const asked = keys.get('device');
    let found = null;
    asked.onsuccess = () => {
      found = asked.result ?? offered;
      if (!asked.result && offered) keys.put(offered, 'device');
    };
    work.oncomplete = () => resolve(found);
    work.onerror = work.onabort = () => reject(work.error);
  });
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function base64url(bytes) {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
