/** The bindings of the config: which wins, and how they are changed. */

type Tree = Readonly<Record<string, unknown>>;
type Patch = Record<string, unknown>;

export interface BindingMatch {
  channel: string;
  /** Empty for the default account, `*` for every account. */
  account: string;
  /** Empty for every chat. */
  kind: string;
  /** Empty for every chat of the kind. */
  peer: string;
  guild: string;
  team: string;
  roles: string[];
}

export interface Binding extends BindingMatch {
  agentId: string;
  /** Where it is in the list of the config. */
  index: number;
  /** The entry as the config has it. */
  entry: Tree;
}

/** What a binding names, from the most specific to the least: the first that fits a message wins. */
export const TIERS = [
  'one chat',
  'every chat of a kind',
  'a guild and a role',
  'a guild',
  'a team',
  'an account',
  'the channel, by any account',
] as const;

export const NO_MATCH: BindingMatch = { channel: '', account: '', kind: '', peer: '', guild: '', team: '', roles: [] };

/** Return the bindings of a config; what is no binding is left out. */
export function readBindings(config: Tree): Binding[] {
  return entriesOf(config).flatMap((entry, index) => {
    if (!isObject(entry) || !isObject(entry.match)) return [];
    const { match } = entry;
    const peer = isObject(match.peer) ? match.peer : {};
    return [
      {
        index,
        entry,
        agentId: text(entry.agentId),
        channel: text(match.channel),
        account: text(match.accountId),
        kind: text(peer.kind) === 'dm' ? 'direct' : text(peer.kind),
        peer: text(peer.id) === '*' ? '' : text(peer.id),
        guild: text(match.guildId),
        team: text(match.teamId),
        roles: Array.isArray(match.roles) ? match.roles.map(text).filter(Boolean) : [],
      },
    ];
  });
}

/** Return the place of a binding in TIERS. */
export function tierOf(binding: BindingMatch): number {
  if (binding.kind) return binding.peer ? 0 : 1;
  if (binding.guild) return binding.roles.length ? 2 : 3;
  if (binding.team) return 4;
  return binding.account === '*' ? 6 : 5;
}

/** Return bindings in the order in which they are tried. */
export function sortBindings(bindings: readonly Binding[]): Binding[] {
  return [...bindings].sort((one, other) => tierOf(one) - tierOf(other) || one.index - other.index);
}

/** Return the earlier binding that matches the same messages, so that this one has no effect. */
export function findEarlier(bindings: readonly Binding[], binding: Binding): Binding | undefined {
  return bindings.find((other) => other.index < binding.index && identityOf(other) === identityOf(binding));
}

/** Return the chat of a binding in words. */
export function describeChat({ kind, peer, guild, team, roles }: BindingMatch): string {
  const chat = kind && (peer ? `${kind}:${peer}` : `every ${kind} chat`);
  const parts = [chat, guild && `guild ${guild}`, team && `team ${team}`, roles.length > 0 && `role ${roles.join(' or ')}`];
  return parts.filter(Boolean).join(', ');
}

export function addPatch(config: Tree, agentId: string, match: BindingMatch): Patch {
  return { bindings: [...entriesOf(config), { agentId, match: encodeMatch(match, {}) }] };
}

/** Return the patch that changes a binding, or removes it with null; throws when it is no longer in the config. */
export function changePatch(config: Tree, binding: Binding, match: BindingMatch | null): Patch {
  const entries = entriesOf(config);
  const wanted = JSON.stringify(binding.entry);
  const index = JSON.stringify(entries[binding.index]) === wanted
    ? binding.index
    : entries.findIndex((entry) => JSON.stringify(entry) === wanted);
  if (index < 0) throw new Error('This binding was changed or removed meanwhile: load the page again.');
  const old = isObject(binding.entry.match) ? binding.entry.match : {};
  const changed = match ? [{ ...binding.entry, match: encodeMatch(match, old) }] : [];
  return { bindings: [...entries.slice(0, index), ...changed, ...entries.slice(index + 1)] };
}

/** Return a match as the config has it; keys that the form does not know are kept. */
function encodeMatch(match: BindingMatch, old: Tree): Patch {
  const others = Object.entries(old).filter(([key]) => !['channel', 'accountId', 'peer', 'guildId', 'teamId', 'roles'].includes(key));
  return {
    ...Object.fromEntries(others),
    channel: match.channel.trim().toLowerCase(),
    ...(match.account.trim() ? { accountId: match.account.trim() } : {}),
    ...(match.kind ? { peer: { kind: match.kind, id: match.peer.trim() || '*' } } : {}),
    ...(match.guild.trim() ? { guildId: match.guild.trim() } : {}),
    ...(match.team.trim() ? { teamId: match.team.trim() } : {}),
    ...(match.roles.length ? { roles: match.roles } : {}),
  };
}

function identityOf({ channel, account, kind, peer, guild, team, roles }: BindingMatch): string {
  const name = account.trim().toLowerCase() || 'default';
  return JSON.stringify([channel.trim().toLowerCase(), name, kind, peer.trim(), guild, team, [...roles].sort()]);
}

function entriesOf(config: Tree): unknown[] {
  return Array.isArray(config.bindings) ? (config.bindings as unknown[]) : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}
