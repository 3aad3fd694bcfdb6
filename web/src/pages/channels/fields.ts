/** The fields of a form that adds an account, from the schema of the config. */

import type { JsonSchema } from '../../protocol/agent-results';

export interface ChannelField {
  key: string;
  label: string;
  kind: 'text' | 'secret' | 'number' | 'boolean' | 'select';
  options: string[];
  isRequired: boolean;
  /** What holds when the field is left empty, as text. */
  fallback: string;
  hint: string;
}

export interface ChannelService {
  id: string;
  label: string;
  /** What an account needs, in the order of a guided form. */
  first: ChannelField[];
  more: ChannelField[];
}

interface Guide {
  required: readonly string[];
  optional?: readonly string[];
  hints: Readonly<Record<string, string>>;
}

const GUIDES: Readonly<Record<string, Guide>> = {
  telegram: {
    required: ['botToken'],
    hints: { botToken: 'Write /newbot to @BotFather in Telegram: it gives you one.' },
  },
  matrix: {
    required: ['homeserver', 'userId'],
    optional: ['password', 'accessToken'],
    hints: {
      homeserver: 'For example https://matrix.org',
      userId: 'It looks like @name:server.',
      accessToken: 'In place of the password',
    },
  },
  irc: {
    required: ['host', 'nick'],
    optional: ['password'],
    hints: {
      host: 'For example irc.libera.chat; TLS is used.',
      password: 'Of the server, if it has one. Leave it empty for a public network.',
    },
  },
};
const ACCESS = 'dmPolicy';

/** Return the services that have an adapter, by name. */
export function readServices(schema: JsonSchema): ChannelService[] {
  const sections = Object.entries(schema.properties?.channels?.properties ?? {});
  const usable = sections.filter(([, section]) => Object.keys(section.properties ?? {}).length);
  const isShared = (key: string): boolean => usable.length > 1 && usable.every(([, section]) => section.properties?.[key]);
  return usable.map(([id, section]) => {
    const guide = GUIDES[id] ?? { required: [], hints: {} };
    const order = [...guide.required, ...(guide.optional ?? [])];
    const fields = Object.entries(section.properties ?? {})
      .filter(([key]) => key === ACCESS || !isShared(key))
      .flatMap(([key, part]) => readField(key, part, guide));
    const first = order.flatMap((key) => fields.filter((field) => field.key === key));
    return { id, label: section.title ?? id, first, more: fields.filter((field) => !first.includes(field)) };
  });
}

function readField(key: string, part: JsonSchema, guide: Guide): ChannelField[] {
  const form = part.anyOf?.find((one) => one.type !== 'null') ?? part;
  const kind = fieldKind(form);
  if (!kind) return [];
  return [
    {
      key,
      label: labelOf(key),
      kind,
      options: (form.enum ?? []).map(String),
      isRequired: guide.required.includes(key),
      fallback: scalarText(part.default),
      hint: guide.hints[key] ?? part.description ?? form.description ?? '',
    },
  ];
}

function scalarText(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? String(value) : '';
}

function fieldKind(form: JsonSchema): ChannelField['kind'] | null {
  if (form.enum) return 'select';
  if (form.type === 'boolean') return 'boolean';
  if (form.type === 'integer' || form.type === 'number') return 'number';
  if (form.type !== 'string') return null; // objects and lists are edited in the config
  return form.writeOnly === true || form.format === 'password' ? 'secret' : 'text';
}

/** “botToken” as “Bot token”. */
export function labelOf(key: string): string {
  const words = key.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Return the settings that were filled in; empty fields are left out. */
export function accountValues(fields: readonly ChannelField[], texts: Readonly<Record<string, string>>): Record<string, unknown> {
  return Object.fromEntries(
    fields.flatMap(({ key, kind }) => {
      const text = (texts[key] ?? '').trim();
      if (!text) return [];
      return [[key, kind === 'number' ? Number(text) : kind === 'boolean' ? text === 'true' : text]];
    }),
  );
}
