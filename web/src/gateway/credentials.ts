/** The token of this tab, the device token of this browser, and the scopes that it requests. */

const TOKEN = 'token';
const DEVICE_TOKEN = 'deviceToken';
const DEVICE_SCOPES = 'deviceScopes';
const WANTED_SCOPES = 'wantedScopes';

const CHAT_SCOPES = ['operator.read', 'operator.write', 'operator.approvals'];
export const ALL_SCOPES = ['operator.admin', ...CHAT_SCOPES, 'operator.pairing'];
const LOOPBACK = /^(?:localhost|.*\.localhost|127(?:\.\d+){3}|\[::1\])$/;

/**
 * Take the token out of the address, where `homarus dashboard` puts it behind a `#`, which browsers
 * send to no server. No other parameter of the address has any effect on where the page connects.
 */
export function takeTokenFromAddress(): void {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token) sessionStorage.setItem(TOKEN, token.trim());
  if (location.hash) history.replaceState(history.state, '', location.pathname + location.search);
}

export function getSecret(): string {
  return sessionStorage.getItem(TOKEN) ?? localStorage.getItem(DEVICE_TOKEN) ?? '';
}

export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
}

/** Forget the token that the gateway refused; returns whether the person had entered one. */
export function dropRefusedToken(): boolean {
  const hadToken = sessionStorage.getItem(TOKEN) !== null;
  sessionStorage.removeItem(TOKEN);
  if (!hadToken) for (const name of [DEVICE_TOKEN, DEVICE_SCOPES]) localStorage.removeItem(name);
  return hadToken;
}

export function saveDevice(deviceToken: string, scopes: readonly string[]): void {
  localStorage.setItem(DEVICE_SCOPES, scopes.join(','));
  localStorage.setItem(DEVICE_TOKEN, deviceToken);
  sessionStorage.removeItem(WANTED_SCOPES);
}

/** On the gateway's own machine the UI requests all scopes; elsewhere what a chat needs. */
export function getRequestedScopes(): readonly string[] {
  const wanted = sessionStorage.getItem(WANTED_SCOPES);
  if (wanted) return wanted.split(',');
  const stored = localStorage.getItem(DEVICE_SCOPES);
  if (stored && localStorage.getItem(DEVICE_TOKEN)) return stored.split(',');
  return LOOPBACK.test(location.hostname) ? ALL_SCOPES : CHAT_SCOPES;
}

/** Request these scopes from the next connection of this tab on; a person has to approve them. */
export function requestScopes(scopes: readonly string[]): void {
  sessionStorage.setItem(WANTED_SCOPES, scopes.join(','));
}

/** Whether this browser has a permission, and requests more. */
export function hasRequestedMore(): boolean {
  return sessionStorage.getItem(WANTED_SCOPES) !== null;
}

export function dropRequestedScopes(): void {
  sessionStorage.removeItem(WANTED_SCOPES);
}
