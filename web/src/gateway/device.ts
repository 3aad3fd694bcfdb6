/** The identity of this browser: an Ed25519 key whose private half the page cannot read. */

import { signal } from '@preact/signals';

const DATABASE = 'homarus';
const STORE = 'keys';
const KEY_NAME = 'device';

export interface SignedDevice {
  id: string;
  publicKey: string;
  signature: string;
  signedAt: number;
  nonce: string;
}

export interface DeviceClaim {
  nonce: string;
  signedAt: number;
  token: string;
  scopes: readonly string[];
  clientId: string;
  mode: string;
  role: string;
}

let cached: CryptoKeyPair | null = null;
/** The id of this browser, once it has signed a claim. */
export const ownDeviceId = signal('');

/** Return the device with its signature of the claim; null where the browser has no Ed25519. */
export async function signDevice(claim: DeviceClaim): Promise<SignedDevice | null> {
  let keys: CryptoKeyPair;
  try {
    keys = await loadKeys();
  } catch {
    return null;
  }
  const raw = new Uint8Array(await crypto.subtle.exportKey('raw', keys.publicKey));
  const id = toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', raw)));
  ownDeviceId.value = id;
  const { nonce, signedAt, token, scopes, clientId, mode, role } = claim;
  const signed = ['v2', id, clientId, mode, role, scopes.join(','), signedAt, token, nonce].join('|');
  const signature = await crypto.subtle.sign('Ed25519', keys.privateKey, new TextEncoder().encode(signed));
  return { id, publicKey: toBase64Url(raw), signature: toBase64Url(new Uint8Array(signature)), signedAt, nonce };
}

/** Return a random id; `crypto.randomUUID` is missing where the page came over plain HTTP. */
export function randomId(): string {
  return toHex(crypto.getRandomValues(new Uint8Array(16)));
}

async function loadKeys(): Promise<CryptoKeyPair> {
  if (cached) return cached;
  const generate = async (): Promise<CryptoKeyPair> =>
    (await crypto.subtle.generateKey('Ed25519', false, ['sign', 'verify']));
  try {
    const database = await openDatabase();
    cached = (await readOrStore(database, null)) ?? (await readOrStore(database, await generate()));
  } catch {
    cached = null; // no storage: the key lasts as long as the page
  }
  cached ??= await generate();
  return cached;
}

function openDatabase(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(request.error ?? new Error('blocked'));
  });
}

/** Return the stored pair, else store `offered`: of two tabs at once, one pair wins. */
function readOrStore(database: IDBDatabase, offered: CryptoKeyPair | null): Promise<CryptoKeyPair | null> {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(STORE, offered ? 'readwrite' : 'readonly');
    const store = transaction.objectStore(STORE);
    const request = store.get(KEY_NAME) as IDBRequest<CryptoKeyPair | undefined>;
    let found: CryptoKeyPair | null = null;
    request.onsuccess = () => {
      found = request.result ?? offered;
      if (!request.result && offered) store.put(offered, KEY_NAME);
    };
    transaction.oncomplete = () => resolve(found);
    transaction.onerror = transaction.onabort = () => reject(transaction.error ?? new Error('aborted'));
  });
}

function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function toBase64Url(bytes: Uint8Array): string {
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '');
}
