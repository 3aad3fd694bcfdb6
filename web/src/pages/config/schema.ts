/** The JSON Schema of the settings, as the form needs it. Pure. */

import { formatPath, isObject, REDACTED, type Path } from './configTree';

export interface Schema {
  title?: string;
  description?: string;
  type?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  items?: Schema;
  anyOf?: Schema[];
  minimum?: number;
  maximum?: number;
}

export type Control = 'object' | 'map' | 'list' | 'texts' | 'choice' | 'boolean' | 'number' | 'text' | 'json';

/** Return the one schema of a value that may also be null; others are as they are. */
export function unwrap(schema: Schema): Schema {
  const forms = (schema.anyOf ?? []).filter(({ type }) => type !== 'null');
  const [only] = forms;
  if (forms.length !== 1 || !only) return schema;
  return { ...only, default: schema.default, ...(schema.description ? { description: schema.description } : {}) };
}

/** Return which control edits a value; `json` where the schema allows several forms. */
export function controlOf(given: Schema): Control {
  const schema = unwrap(given);
  if (schema.anyOf) return 'json';
  if (schema.enum) return 'choice';
  if (schema.type === 'object') return controlOfObject(schema);
  if (schema.type === 'array') return controlOfList(schema);
  if (schema.type === 'boolean') return 'boolean';
  if (schema.type === 'integer' || schema.type === 'number') return 'number';
  return schema.type === 'string' ? 'text' : 'json';
}

function controlOfObject({ properties, additionalProperties }: Schema): Control {
  if (properties && Object.keys(properties).length) return 'object';
  return isObject(additionalProperties) && Object.keys(additionalProperties).length ? 'map' : 'json';
}

function controlOfList({ items }: Schema): Control {
  if (!items) return 'json';
  const inner = controlOf(items);
  if (inner === 'text') return 'texts';
  return inner === 'object' ? 'list' : 'json';
}

export interface KnownKey {
  path: Path;
  name: string;
  schema: Schema;
}

const MAX_DEPTH = 8;

/** Return every setting with a fixed place; those inside maps and lists have none. */
export function listKeys(schema: Schema, path: Path = []): KnownKey[] {
  if (path.length >= MAX_DEPTH) return [];
  return Object.entries(unwrap(schema).properties ?? {}).flatMap(([name, inner]) => {
    const at = [...path, name];
    const isInner = controlOf(inner) === 'object';
    return [...(isInner ? listKeys(unwrap(inner), at) : []), ...(isInner ? [] : [{ path: at, name: formatPath(at), schema: inner }])];
  });
}

/** Return the names and descriptions in a map or a list, so that a search finds what holds a setting. */
function innerText(schema: Schema): string {
  const { additionalProperties, items } = unwrap(schema);
  const inner = items ?? (isObject(additionalProperties) ? additionalProperties : null);
  return inner ? listKeys(inner).map(({ name }) => name).join(' ') : '';
}

/** Return the settings whose key or description has every word of a text; those whose key has them, and short ones, first. */
export function searchKeys(keys: readonly KnownKey[], text: string, limit: number): KnownKey[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const hasWords = (searched: string): boolean => words.every((word) => searched.toLowerCase().includes(word));
  const rankOf = ({ name, schema }: KnownKey): number => {
    if (hasWords(name)) return 0;
    if (hasWords(`${name} ${unwrap(schema).description ?? ''}`)) return 1;
    return hasWords(`${name} ${innerText(schema)}`) ? 2 : 3;
  };
  return keys
    .map((key) => ({ key, rank: rankOf(key) }))
    .filter(({ rank }) => rank < 3)
    .sort((one, other) => one.rank - other.rank || one.key.path.length - other.key.path.length || one.key.name.localeCompare(other.key.name))
    .slice(0, limit)
    .map(({ key }) => key);
}

/** Return whether a setting is a secret, by hints such as `models.providers.*.apiKey`. */
export function isSensitive(hints: Readonly<Record<string, { sensitive?: boolean }>>, path: Path): boolean {
  const steps = path.map(String);
  return Object.entries(hints).some(([pattern, { sensitive }]) => {
    const wanted = pattern.replaceAll('[]', '.*').split('.');
    return sensitive && wanted.length === steps.length && wanted.every((step, at) => step === '*' || step === steps[at]);
  });
}

/** Return what is known about a value: the default and the bounds. */
export function describeBounds(given: Schema): string {
  const schema = unwrap(given);
  const parts: string[] = [];
  const { default: usual } = schema;
  if (usual !== undefined && usual !== null && typeof usual !== 'object') parts.push(`Default: ${JSON.stringify(usual).replaceAll('"', '')}.`);
  if (schema.minimum !== undefined) parts.push(`At least ${schema.minimum}.`);
  if (schema.maximum !== undefined) parts.push(`At most ${schema.maximum}.`);
  return parts.join(' ');
}

/** Return a tree whose newly typed secrets are not readable; it is for the eyes alone. */
export function maskSecrets(value: unknown, hints: Readonly<Record<string, { sensitive?: boolean }>>, path: Path = []): unknown {
  if (Array.isArray(value)) return value.map((inner, at) => maskSecrets(inner, hints, [...path, at]));
  if (isObject(value))
    return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, maskSecrets(inner, hints, [...path, name])]));
  return typeof value === 'string' && value !== REDACTED && isSensitive(hints, path) ? '(new secret)' : value;
}
