/** A conversation as a file. */

import { call } from '../../gateway/gateway';
import type { HistoryMessage } from '../../protocol/results';
import { buildTurns, idOf, type Turn } from './turns';
import { subjectOf } from './toolView';

const PAGE_MESSAGES = 500;
const MAX_CHARS = 500_000;
const MAX_PAGES = 200;

/** Load every message of a conversation, oldest first. */
export async function loadAll(sessionKey: string): Promise<HistoryMessage[]> {
  let messages: HistoryMessage[] = [];
  for (let count = 0; count < MAX_PAGES; count++) {
    const before = idOf(messages[0]);
    const params = { sessionKey, limit: PAGE_MESSAGES, maxChars: MAX_CHARS, ...(before ? { before } : {}) };
    const page = await call('chat.history', params);
    messages = [...page.messages, ...messages];
    if (!page.hasMore || !page.messages.length) break;
  }
  return messages;
}

export function toMarkdown(title: string, messages: readonly HistoryMessage[]): string {
  return [`# ${title}`, ...buildTurns(messages).map(turnText)].join('\n\n') + '\n';
}

function turnText(turn: Turn): string {
  if (turn.kind === 'note') return `*${turn.text}*`;
  const at = new Date(turn.atMs).toISOString();
  if (turn.kind === 'question') {
    const files = turn.files.map((file) => `- attached: ${file}`);
    return [`## You, ${at}`, turn.text, ...files].filter(Boolean).join('\n\n');
  }
  const blocks = turn.blocks.map((block) => {
    if (block.kind === 'text') return block.text;
    if (block.kind === 'tool') return `> **${block.name}** \`${subjectOf(block).replaceAll('`', "'")}\`${block.isError ? ' (failed)' : ''}`;
    return '';
  });
  return [`## Agent${turn.figures.model ? `, ${turn.figures.model}` : ''}, ${at}`, ...blocks, turn.note].filter(Boolean).join('\n\n');
}

/** Return a name for the file that every system accepts. */
export function fileNameOf(title: string, extension: string): string {
  const plain = title.normalize('NFKD').replace(/[^\w -]+/g, '').trim().replace(/\s+/g, '-').toLowerCase();
  return `${plain.slice(0, 60) || 'conversation'}.${extension}`;
}
