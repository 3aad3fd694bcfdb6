/** Changes of the accounts of a channel, as patches of the config. */

type Tree = Readonly<Record<string, unknown>>;
type Patch = Record<string, unknown>;

/** Return the patch that adds an account; the first one moves under `accounts` beside a second. */
export function accountPatch(
  parsed: Tree,
  channel: string,
  account: string,
  values: Tree,
): Patch {
  const channels = asObject(parsed.channels);
  const section = asObject(channels[channel]);
  const isNew = !(channel in channels);
  const hasAccounts = 'accounts' in section;
  if (account === 'default' && !hasAccounts) return { channels: { [channel]: { enabled: true, ...values } } };
  const first = isNew || hasAccounts ? {} : { default: {} };
  const on = section.enabled === false ? { enabled: true } : {};
  return { channels: { [channel]: { ...on, accounts: { ...first, [account]: { enabled: true, ...values } } } } };
}

/** Return the patch that turns an account on or off. */
export function switchPatch(parsed: Tree, channel: string, account: string, isEnabled: boolean): Patch {
  const name = findAccount(parsed, channel, account);
  const change = { enabled: isEnabled };
  return { channels: { [channel]: name === null ? change : { accounts: { [name]: change } } } };
}

/** Return the patch that removes an account; the section of the channel goes with its last account. */
export function removePatch(parsed: Tree, channel: string, account: string): Patch {
  const name = findAccount(parsed, channel, account);
  const names = Object.keys(accountsOf(parsed, channel));
  const isLast = name === null || names.every((each) => normalizeId(each) === normalizeId(name));
  return { channels: { [channel]: isLast ? null : { accounts: { [name]: null } } } };
}

/** Return the name of an account under `accounts`; null when the section of the channel is the account. */
function findAccount(parsed: Tree, channel: string, account: string): string | null {
  const names = Object.keys(accountsOf(parsed, channel));
  if (!(channel in asObject(parsed.channels))) throw new Error(`The config has no ${channel}: load the page again.`);
  if (!names.length) return null;
  const found = names.find((name) => name === account) ?? names.find((name) => normalizeId(name) === account);
  if (found === undefined) throw new Error(`The config has no account ${account} of ${channel}: load the page again.`);
  return found;
}

function accountsOf(parsed: Tree, channel: string): Record<string, unknown> {
  return asObject(asObject(asObject(parsed.channels)[channel]).accounts);
}

/** Return an account name as the gateway shows it. */
function normalizeId(name: string): string {
  return name.trim().toLowerCase().replace(/[^a-z0-9_-]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 64) || 'default';
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
