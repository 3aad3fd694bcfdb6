import { describe, expect, it } from 'vitest';
import { findChanges, formatPath, getAt, isSame, REDACTED, replay, setAt } from '../src/pages/config/configTree';
import { controlOf, describeBounds, isSensitive, listKeys, maskSecrets, searchKeys } from '../src/pages/config/schema';

describe('tree of settings', () => {
  const tree = { a: { b: 1, list: [{ id: 'x' }, { id: 'y' }] }, s: REDACTED };

  it('reads and changes values without touching the old tree', () => {
    expect(getAt(tree, ['a', 'list', 1, 'id'])).toBe('y');
    expect(getAt(tree, ['constructor'])).toBeUndefined();
    const changed = setAt(tree, ['a', 'list', 0, 'id'], 'z');
    expect(getAt(changed, ['a', 'list', 0, 'id'])).toBe('z');
    expect(tree.a.list[0]).toEqual({ id: 'x' });
    expect(setAt(tree, ['new', 'inner'], true)).toMatchObject({ new: { inner: true } });
    expect(getAt(setAt(tree, ['a', 'list', 0], undefined), ['a', 'list'])).toEqual([{ id: 'y' }]);
    expect(Object.keys(setAt(tree, ['a'], undefined))).toEqual(['s']);
  });

  it('makes changes again in a tree that was changed meanwhile', () => {
    const edited = setAt(setAt(tree, ['a', 'b'], 2), ['s'], undefined);
    const changes = findChanges(tree, edited);
    expect(changes.map(({ path }) => formatPath(path))).toEqual(['a.b', 's']);
    const elsewhere = setAt(tree, ['other'], 3);
    expect(replay(elsewhere, changes)).toEqual({ a: { b: 2, list: tree.a.list }, other: 3 });
    expect(isSame(tree, JSON.parse(JSON.stringify(tree)))).toBe(true);
    expect(isSame({ a: undefined }, { b: undefined })).toBe(false);
  });

  it('keeps names that JavaScript knows as plain keys', () => {
    const odd = setAt({}, ['__proto__', 'polluted'], true);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.keys(odd)).toEqual(['__proto__']);
  });
});

describe('schema', () => {
  const nullable = (type: string) => ({ anyOf: [{ type }, { type: 'null' }] });
  const schema = {
    properties: {
      port: { ...nullable('integer'), default: 18789 },
      gateway: { type: 'object', properties: { token: nullable('string'), modes: { type: 'array', items: { type: 'string' } } } },
    },
  };

  it('finds a control for each form', () => {
    expect(controlOf(nullable('integer'))).toBe('number');
    expect(controlOf({ anyOf: [{ type: 'string' }, { type: 'object', properties: { a: {} } }] })).toBe('json');
    expect(controlOf({ type: 'object', additionalProperties: { type: 'string' } })).toBe('map');
    expect(controlOf({ type: 'object', additionalProperties: false })).toBe('json');
    expect(controlOf({ type: 'array', items: { type: 'object', properties: { a: {} } } })).toBe('list');
    expect(controlOf({})).toBe('json');
    expect(describeBounds(schema.properties.port)).toBe('Default: 18789.');
  });

  it('lists and searches keys', () => {
    const keys = listKeys(schema);
    expect(keys.map(({ name }) => name)).toEqual(['port', 'gateway.token', 'gateway.modes']);
    expect(searchKeys(keys, 'gate tok', 5).map(({ name }) => name)).toEqual(['gateway.token']);
    expect(searchKeys(keys, '  ', 5)).toEqual([]);
  });

  it('hides secrets by their place', () => {
    const hints = { 'providers.*.apiKey': { sensitive: true }, 'list[].key': { sensitive: true } };
    expect(isSensitive(hints, ['providers', 'x', 'apiKey'])).toBe(true);
    expect(isSensitive(hints, ['list', 0, 'key'])).toBe(true);
    expect(isSensitive(hints, ['providers', 'x', 'url'])).toBe(false);
    const tree = { providers: { x: { apiKey: 'typed', url: 'u' }, y: { apiKey: REDACTED } } };
    expect(maskSecrets(tree, hints)).toEqual({ providers: { x: { apiKey: '(new secret)', url: 'u' }, y: { apiKey: REDACTED } } });
  });

  it('finds settings by key, by description, and inside maps', () => {
    const found = {
      properties: {
        spend: { type: 'number', description: 'The most that a run costs.' },
        limit: { type: 'number', description: 'A spend limit.' },
        providers: { type: 'object', additionalProperties: { type: 'object', properties: { apiKey: { type: 'string' } } } },
      },
    };
    const names = (text: string): string[] => searchKeys(listKeys(found), text, 10).map(({ name }) => name);
    expect(names('spend')).toEqual(['spend', 'limit']);
    expect(names('APIKEY')).toEqual(['providers']);
    expect(names('nothing')).toEqual([]);
  });
});
