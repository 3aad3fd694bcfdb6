import { describe, expect, it } from 'vitest';
import { addPatch, changePatch, describeChat, findEarlier, NO_MATCH, readBindings, sortBindings, tierOf } from '../src/pages/agents/bindings';
import { primaryModel } from '../src/pages/agents/models';
import { accountPatch, removePatch, switchPatch } from '../src/pages/channels/accountPatches';
import { accountValues, labelOf, readServices } from '../src/pages/channels/fields';
import { groupNotes } from '../src/pages/memory/timeline';
import { hasModel, isUsable } from '../src/pages/setup/hasModel';
import { countStates, matchesSkill } from '../src/pages/skills/filter';
import { buildTree } from '../src/pages/subagents/tree';
import type { SubagentRow } from '../src/protocol/agent-results';
import type { SkillRow } from '../src/protocol/skill-results';

describe('agents', () => {
  it('name the model that a new conversation starts with', () => {
    const agents = [{ id: 'main' }, { id: 'work', model: { primary: 'openrouter/vendor/model-1' } }];
    expect(['work', 'main', 'gone'].map((id) => primaryModel(agents, id))).toEqual(['vendor/model-1', '', '']);
  });
});

describe('bindings', () => {
  const config = {
    bindings: [
      { agentId: 'main', match: { channel: 'irc' } },
      { agentId: 'work', note: 'kept', match: { channel: 'telegram', accountId: 'two', peer: { kind: 'group', id: -42 }, extra: 1 } },
      'nonsense',
      { agentId: 'x', match: null },
      { agentId: 'all', match: { channel: 'irc', accountId: '*' } },
      { agentId: 'late', match: { channel: 'IRC', accountId: 'default' } },
      { agentId: 'kind', match: { channel: 'irc', peer: { kind: 'dm', id: '*' } } },
    ],
  };
  const read = readBindings(config);

  it('reads bindings and leaves out what is none', () => {
    expect(read.map(({ index, agentId, channel, account }) => [index, agentId, channel, account])).toEqual([
      [0, 'main', 'irc', ''],
      [1, 'work', 'telegram', 'two'],
      [4, 'all', 'irc', '*'],
      [5, 'late', 'IRC', 'default'],
      [6, 'kind', 'irc', ''],
    ]);
    expect(read.map(describeChat)).toEqual(['', 'group:-42', '', '', 'every direct chat']);
    expect(readBindings({ bindings: 'none' })).toEqual([]);
  });

  it('sorts them as the gateway tries them', () => {
    expect(sortBindings(read).map(({ agentId }) => agentId)).toEqual(['work', 'kind', 'main', 'late', 'all']);
    expect([{ guild: 'g', roles: ['r'] }, { guild: 'g' }, { team: 't' }].map((part) => tierOf({ ...NO_MATCH, ...part }))).toEqual([2, 3, 4]);
  });

  it('finds a binding that has no effect', () => {
    expect(read.map((binding) => findEarlier(read, binding)?.agentId)).toEqual([undefined, undefined, undefined, 'main', undefined]);
  });

  it('adds, changes and removes one, and leaves the others as they are', () => {
    const added = addPatch(config, 'work', { ...NO_MATCH, channel: ' Matrix ', kind: 'group', roles: [] });
    expect(added.bindings).toEqual([...config.bindings, { agentId: 'work', match: { channel: 'matrix', peer: { kind: 'group', id: '*' } } }]);
    const [, work] = read;
    if (!work) throw new Error('not read');
    const changed = changePatch(config, work, { ...work, account: '', kind: '', guild: 'g' }).bindings as unknown[];
    expect(changed[1]).toEqual({ agentId: 'work', note: 'kept', match: { extra: 1, channel: 'telegram', guildId: 'g' } });
    expect(changed).toHaveLength(config.bindings.length);
    const moved = { bindings: ['new', ...config.bindings] };
    expect(changePatch(moved, work, null).bindings).toEqual(moved.bindings.filter((_, at) => at !== 2));
    expect(() => changePatch({ bindings: [] }, work, null)).toThrow('changed or removed');
  });
});

describe('accounts of a channel', () => {
  const one = { channels: { irc: { host: 'a' } } };
  const two = { channels: { irc: { host: 'a', accounts: { Work: {}, home: {} } } } };

  it('are turned on and off where they are written', () => {
    expect(switchPatch(one, 'irc', 'default', false)).toEqual({ channels: { irc: { enabled: false } } });
    expect(switchPatch(two, 'irc', 'work', true)).toEqual({ channels: { irc: { accounts: { Work: { enabled: true } } } } });
    expect(() => switchPatch(two, 'irc', 'none', true)).toThrow('no account none');
    expect(() => switchPatch({}, 'irc', 'default', true)).toThrow('no irc');
  });

  it('are removed, the last one with its channel', () => {
    expect(removePatch(one, 'irc', 'default')).toEqual({ channels: { irc: null } });
    expect(removePatch(two, 'irc', 'work')).toEqual({ channels: { irc: { accounts: { Work: null } } } });
    expect(removePatch({ channels: { irc: { accounts: { home: {} } } } }, 'irc', 'home')).toEqual({ channels: { irc: null } });
  });
});

describe('groupNotes', () => {
  it('groups notes by month and keeps the others apart', () => {
    const note = (path: string, day: string | null): Parameters<typeof groupNotes>[0][number] => ({
      path,
      day,
      size: 1,
      updatedAtMs: 0,
      audience: '',
    });
    const groups = groupNotes([note('b', '2026-02-05'), note('a', '2026-02-03'), note('c', '2026-01-31'), note('MEMORY.md', null)]);
    expect(groups.map(({ title, notes }) => [title, notes.length])).toEqual([
      ['February 2026', 2],
      ['January 2026', 1],
      ['Long-term notes', 1],
    ]);
  });
});

describe('skills', () => {
  const skill = (name: string, more: Partial<SkillRow>): SkillRow => ({
    name,
    skillKey: name,
    description: `does ${name}`,
    source: 'x',
    bundled: false,
    eligible: true,
    disabled: false,
    blockedByAllowlist: false,
    missing: {},
    requirements: {},
    reasons: [],
    install: [],
    ...more,
  });

  it('counts and filters by state', () => {
    const skills = [
      skill('a', {}),
      skill('b', { eligible: false }),
      skill('c', { disabled: true, eligible: false }),
      skill('d', { blockedByAllowlist: true }),
    ];
    expect(countStates(skills)).toEqual({ ready: 1, missing: 2, disabled: 1 });
    expect(skills.filter((one) => matchesSkill(one, 'missing', '')).map(({ name }) => name)).toEqual(['b', 'd']);
    expect(skills.filter((one) => matchesSkill(one, 'all', ' DOES C ')).map(({ name }) => name)).toEqual(['c']);
  });
});

describe('buildTree', () => {
  const row = (sessionKey: string, requesterSessionKey: string): SubagentRow => ({
    runId: sessionKey,
    sessionKey,
    requesterSessionKey,
    status: 'running',
    runtimeMs: 0,
  });

  it('puts sub-agents below those that started them', () => {
    const [root, other] = buildTree([row('child', 'one'), row('one', 'main'), row('two', 'main'), row('far', 'gone')]);
    expect(root?.sessionKey).toBe('main');
    expect(root?.children.map((node) => node.row.sessionKey)).toEqual(['one', 'two']);
    expect(root?.children[0]?.children[0]?.row.sessionKey).toBe('child');
    expect(other?.sessionKey).toBe('gone');
  });

  it('shows rows that refer to each other', () => {
    const keys = buildTree([row('a', 'b'), row('b', 'a'), row('self', 'self')]).flatMap(({ children }) => children);
    const count = (nodes: typeof keys): number => nodes.reduce((sum, node) => sum + 1 + count(node.children), 0);
    expect(count(keys)).toBe(3);
  });
});

describe('form of a channel', () => {
  const text = { anyOf: [{ type: 'string' }, { type: 'null' }] };
  const secret = { anyOf: [{ type: 'string', format: 'password', writeOnly: true }, { type: 'null' }] };
  const shared = { enabled: { type: 'boolean' }, dmPolicy: { type: 'string', enum: ['pairing', 'open'], default: 'pairing' } };
  const schema = {
    properties: {
      channels: {
        properties: {
          telegram: { title: 'Telegram', properties: { ...shared, proxy: text, botToken: secret, network: { type: 'object' } } },
          irc: { title: 'IRC', properties: { ...shared, port: { type: 'integer' }, host: { type: 'string' }, nick: { type: 'string' } } },
          discord: { title: 'Discord', description: 'There is no adapter' },
        },
      },
    },
  };

  it('asks first for what an account needs', () => {
    const [telegram, irc, ...others] = readServices(schema);
    expect(others).toEqual([]);
    expect(telegram?.first.map(({ key, kind, isRequired }) => [key, kind, isRequired])).toEqual([['botToken', 'secret', true]]);
    expect(telegram?.more.map(({ key }) => key)).toEqual(['dmPolicy', 'proxy']);
    expect(irc?.first.map(({ key }) => key)).toEqual(['host', 'nick']);
    expect(irc?.more.map(({ key, kind, fallback }) => [key, kind, fallback])).toEqual([
      ['dmPolicy', 'select', 'pairing'],
      ['port', 'number', ''],
    ]);
    expect(labelOf('botToken')).toBe('Bot token');
  });

  it('leaves empty fields out and converts the others', () => {
    const irc = readServices(schema)[1];
    expect(accountValues([...(irc?.first ?? []), ...(irc?.more ?? [])], { host: ' irc.example ', port: '6697', nick: ' ' })).toEqual({
      host: 'irc.example',
      port: 6697,
    });
  });

  it('adds a second account beside the first', () => {
    const values = { botToken: 'x' };
    expect(accountPatch({}, 'telegram', 'default', values)).toEqual({ channels: { telegram: { enabled: true, botToken: 'x' } } });
    expect(accountPatch({ channels: { telegram: { botToken: 'y' } } }, 'telegram', 'two', values)).toEqual({
      channels: { telegram: { accounts: { default: {}, two: { enabled: true, botToken: 'x' } } } },
    });
  });
});

describe('isUsable', () => {
  it('counts a model with a key in the environment, and not the demo', () => {
    expect(isUsable({ model: 'anthropic/claude', problem: null })).toBe(true);
    expect(isUsable({ model: 'anthropic/claude', problem: { message: 'no key', fix: '' } })).toBe(false);
    expect(isUsable({ model: 'local/demo', problem: null })).toBe(false);
  });
});

describe('isUsable', () => {
  it('counts a model with a key in the environment, and not the demo', () => {
    expect(isUsable({ model: 'anthropic/claude', problem: null })).toBe(true);
    expect(isUsable({ model: 'anthropic/claude', problem: { message: 'no key', fix: '' } })).toBe(false);
    expect(isUsable({ model: 'local/demo', problem: null })).toBe(false);
  });
});

describe('hasModel', () => {
  it('finds the model of any agent', () => {
    expect(hasModel({})).toBe(false);
    expect(hasModel({ agents: { defaults: { model: {} }, list: [{ id: 'a' }] } })).toBe(false);
    expect(hasModel({ agents: { defaults: { model: { primary: 'a/b' } } } })).toBe(true);
    expect(hasModel({ agents: { list: [{ id: 'a', model: 'a/b' }] } })).toBe(true);
  });
});
