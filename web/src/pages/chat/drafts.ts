/** What was written and not sent, for each conversation of this tab. */

import { signal } from '@preact/signals';
import type { Attachment } from './outbox';

/** Counts changes that the field did not make itself. */
export const draftVersion = signal(0);

/** Attached files: they last as long as the page, the browser's storage for a tab is too small. */
const files = signal<ReadonlyMap<string, readonly Attachment[]>>(new Map());
const NO_FILES: readonly Attachment[] = [];

const nameOf = (sessionKey: string): string => `draft:${sessionKey}`;

/** Return what was written; what was written before the first connection belongs to the first conversation. */
export function loadDraft(sessionKey: string): string {
  if (sessionKey) moveText('', sessionKey);
  return sessionStorage.getItem(nameOf(sessionKey)) ?? '';
}

export function draftFiles(sessionKey: string): readonly Attachment[] {
  return files.value.get(sessionKey) ?? NO_FILES;
}

export function storeFiles(sessionKey: string, attachments: readonly Attachment[]): void {
  files.value = new Map([...files.value, [sessionKey, attachments]]);
}

/** Put a message back where it was written, before what is written there now. */
export function restoreDraft(sessionKey: string, text: string, attachments: readonly Attachment[]): void {
  storeFiles(sessionKey, [...attachments, ...draftFiles(sessionKey)]);
  saveDraft(sessionKey, joinTexts(text, loadDraft(sessionKey)));
}

/** The gateway has told how it calls a conversation: what was written there belongs to that name. */
export function renameDraft(sessionKey: string, storedKey: string): void {
  moveText(sessionKey, storedKey);
  const moved = draftFiles(sessionKey);
  if (!moved.length) return;
  storeFiles(storedKey, [...draftFiles(storedKey), ...moved]);
  storeFiles(sessionKey, []);
}

function moveText(from: string, to: string): void {
  const text = sessionStorage.getItem(nameOf(from));
  if (text === null) return;
  storeDraft(from, '');
  storeDraft(to, joinTexts(sessionStorage.getItem(nameOf(to)) ?? '', text));
}

function joinTexts(...texts: string[]): string {
  return texts.filter(Boolean).join('\n\n');
}

/** Store a draft, and show it in the field. */
export function saveDraft(sessionKey: string, text: string): void {
  storeDraft(sessionKey, text);
  draftVersion.value++;
}

export function storeDraft(sessionKey: string, text: string): void {
  try {
    if (text) sessionStorage.setItem(nameOf(sessionKey), text);
    else sessionStorage.removeItem(nameOf(sessionKey));
  } catch {
    // The storage is full: the text stays in the field.
  }
}
