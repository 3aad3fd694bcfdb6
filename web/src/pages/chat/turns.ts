/** Messages of a transcript become turns: what a person wrote, and what the agent answered. */

import type { HistoryMessage, Part } from '../../protocol/results';

export interface ToolBlock {
  kind: 'tool';
  key: string;
  id: string;
  name: string;
  args: Readonly<Record<string, unknown>>;
  /** What it returned; null while it runs, or when nothing is stored. */
  output: string | null;
  isError: boolean;
  isRunning: boolean;
  startedAtMs: number;
  endedAtMs: number;
  details: Readonly<Record<string, unknown>> | null;
  images: readonly ImageRef[];
}

export interface ImageRef {
  messageId: string;
  index: number | null;
  path: string;
}

export type Block =
  | { kind: 'text'; key: string; text: string; cutId: string }
  | { kind: 'thinking'; key: string; text: string }
  | { kind: 'image'; key: string; image: ImageRef }
  | ToolBlock;

export interface Figures {
  model: string;
  tokens: number;
  costUsd: number;
  durationMs: number;
}

export type Turn =
  | { kind: 'question'; key: string; text: string; files: readonly string[]; images: readonly ImageRef[]; atMs: number; source: string }
  | { kind: 'answer'; key: string; messageId: string; blocks: readonly Block[]; figures: Figures; atMs: number; note: string; isError: boolean }
  | { kind: 'note'; key: string; text: string };

const ATTACHED = /^\[media (?:attached|missing): (.+)\]$/gm;

/** Turns by their first message: those whose messages are the same objects are built once. */
const cache = new WeakMap<HistoryMessage, { messages: readonly HistoryMessage[]; turn: Turn | null }>();

/** Return the turns of messages, oldest first. */
export function buildTurns(messages: readonly HistoryMessage[]): Turn[] {
  const turns: Turn[] = [];
  let open: HistoryMessage[] = [];
  let askedAtMs = 0;
  const close = (): void => {
    const asked = askedAtMs;
    const turn = cached(open, (group) => buildAnswer(group, asked));
    if (turn) turns.push(turn);
    open = [];
  };
  messages.forEach((message, at) => {
    if (message.role === 'assistant' || message.role === 'toolResult') {
      open.push(message);
      return;
    }
    close();
    if (message.role === 'user') askedAtMs = message.timestamp;
    const turn = cached([message], () =>
      message.role === 'user' ? buildQuestion(message, at) : { kind: 'note', key: keyOf(message, at), text: noteText(message) },
    );
    if (turn) turns.push(turn);
  });
  close();
  return turns;
}

function cached(messages: readonly HistoryMessage[], build: (messages: readonly HistoryMessage[]) => Turn | null): Turn | null {
  const first = messages[0];
  if (!first) return null;
  const known = cache.get(first);
  if (known?.messages.length === messages.length && messages.every((message, at) => message === known.messages[at]))
    return known.turn;
  const turn = build(messages);
  cache.set(first, { messages, turn });
  return turn;
}

/** Return the messages, with objects of `known` for those that did not change. */
export function reuseMessages(messages: readonly HistoryMessage[], known: readonly HistoryMessage[]): HistoryMessage[] {
  const byId = new Map(known.map((message) => [idOf(message), message]));
  return messages.map((message) => {
    const same = byId.get(idOf(message));
    return same && JSON.stringify(same) === JSON.stringify(message) ? same : message;
  });
}

export function idOf(message: HistoryMessage | undefined): string {
  return message?.__openclaw?.id ?? '';
}

export function textOf(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

/** Return the text of a person without the lines that name its files, and those names. */
export function splitFiles(text: string): { text: string; files: string[] } {
  const files = [...text.matchAll(ATTACHED)].map(([, named]) => fileName(named ?? ''));
  return { text: text.replace(ATTACHED, '').trim(), files };
}

function fileName(named: string): string {
  const inside = /\(([^()]*)\)$/.exec(named)?.[1] ?? '';
  const given = inside.includes(', ') ? inside.slice(inside.indexOf(', ') + 2) : '';
  return given || (named.split(' (')[0] ?? named).split('/').at(-1) || named;
}

function keyOf(message: HistoryMessage, at: number): string {
  return idOf(message) || `${message.role}-${message.timestamp}-${at}`;
}

function noteText(message: HistoryMessage): string {
  return message.__openclaw?.kind === 'compaction' ? 'Earlier messages were summarised here' : textOf(message.content);
}

function buildQuestion(message: HistoryMessage, at: number): Turn {
  const { text, files } = splitFiles(textOf(message.content));
  const key = keyOf(message, at);
  const source = message.provenance?.sourceChannel ?? message.provenance?.sourceTool ?? '';
  return { kind: 'question', key, text, files, images: imagesOf(message), atMs: message.timestamp, source };
}

function imagesOf(message: HistoryMessage): ImageRef[] {
  const messageId = idOf(message);
  return message.content.flatMap((part) =>
    part.type === 'image' ? [{ messageId, index: part.index ?? null, path: '' }] : [],
  );
}

function buildAnswer(messages: readonly HistoryMessage[], askedAtMs: number): Turn | null {
  const last = messages.findLast(({ role }) => role === 'assistant');
  const first = messages[0];
  if (!first) return null;
  const results = new Map(messages.flatMap((each) => (each.toolCallId ? [[each.toolCallId, each] as const] : [])));
  const blocks = messages
    .filter(({ role }) => role === 'assistant')
    .flatMap((message, at) => message.content.flatMap((part, index) => buildBlock(part, message, `${keyOf(message, at)}-${index}`, results)));
  const note = last ? endNote(last) : { text: '', isError: false };
  if (!blocks.length && !note.text) return null;
  return {
    kind: 'answer',
    key: keyOf(first, 0),
    messageId: idOf(last ?? first),
    blocks,
    figures: figuresOf(messages, askedAtMs),
    atMs: last?.timestamp ?? first.timestamp,
    note: note.text,
    isError: note.isError,
  };
}

function endNote(message: HistoryMessage): { text: string; isError: boolean } {
  if (message.openclawAbort) return { text: 'Stopped.', isError: false };
  if (message.errorMessage) return { text: message.errorMessage, isError: true };
  return { text: message.stopReason === 'aborted' ? 'Stopped.' : '', isError: false };
}

function buildBlock(
  part: Part,
  message: HistoryMessage,
  key: string,
  results: ReadonlyMap<string, HistoryMessage>,
): Block[] {
  switch (part.type) {
    case 'text':
      return part.text ? [{ kind: 'text', key, text: part.text, cutId: message.__openclaw?.truncated ? idOf(message) : '' }] : [];
    case 'thinking':
      return part.thinking.trim() ? [{ kind: 'thinking', key, text: part.thinking }] : [];
    case 'image':
      return [{ kind: 'image', key, image: { messageId: idOf(message), index: part.index ?? null, path: '' } }];
    case 'media':
      return [{ kind: 'image', key, image: { messageId: idOf(message), index: null, path: part.path } }];
    case 'toolCall':
      return [buildTool(part.id, part.name, part.arguments, key, message, results.get(part.id))];
  }
}

function buildTool(
  id: string,
  name: string,
  args: Record<string, unknown>,
  key: string,
  call: HistoryMessage,
  result: HistoryMessage | undefined,
): ToolBlock {
  return {
    kind: 'tool',
    key,
    id,
    name,
    args,
    output: result ? textOf(result.content) : null,
    isError: result?.isError ?? false,
    isRunning: false,
    startedAtMs: call.timestamp,
    endedAtMs: result?.timestamp ?? 0,
    details: result?.details ?? null,
    images: result ? imagesOf(result) : [],
  };
}

function figuresOf(messages: readonly HistoryMessage[], askedAtMs: number): Figures {
  const answers = messages.filter(({ role }) => role === 'assistant');
  const last = answers.at(-1);
  const sum = (get: (message: HistoryMessage) => number | undefined): number =>
    answers.reduce((total, message) => total + (get(message) ?? 0), 0);
  const isOurs = last?.provider !== 'openclaw'; // the reply of a command has no model
  return {
    model: isOurs ? (last?.model ?? '') : '',
    tokens: sum(({ usage }) => usage?.totalTokens),
    costUsd: sum(({ usage }) => usage?.cost?.total),
    durationMs: askedAtMs && last ? Math.max(0, last.timestamp - askedAtMs) : 0,
  };
}
