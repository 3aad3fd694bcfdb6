import { beforeEach, describe, expect, it } from 'vitest';
import { draftFiles, draftVersion, loadDraft, renameDraft, restoreDraft, storeDraft, storeFiles } from '../src/pages/chat/drafts';
import type { Attachment } from '../src/pages/chat/outbox';

const KEY = 'agent:main:main';

function file(name: string): Attachment {
  return { name, mime: 'text/plain', bytes: 1, url: 'data:,x' };
}

beforeEach(() => {
  sessionStorage.clear();
  storeFiles(KEY, []);
});

describe('drafts', () => {
  it('are kept for each conversation', () => {
    storeDraft(KEY, 'Half a thought');
    storeFiles(KEY, [file('a.txt')]);
    expect(loadDraft('agent:main:other')).toBe('');
    expect(draftFiles('agent:main:other')).toEqual([]);
    expect(loadDraft(KEY)).toBe('Half a thought');
    expect(draftFiles(KEY)).toEqual([file('a.txt')]);
  });

  it('get a message back before what is written meanwhile, with its files', () => {
    storeDraft(KEY, 'Newer words');
    storeFiles(KEY, [file('new.txt')]);
    const version = draftVersion.value;
    restoreDraft(KEY, 'What was not sent', [file('old.txt')]);
    expect(loadDraft(KEY)).toBe('What was not sent\n\nNewer words');
    expect(draftFiles(KEY).map(({ name }) => name)).toEqual(['old.txt', 'new.txt']);
    expect(draftVersion.value).toBe(version + 1);
  });

  it('follow the conversation to the name that the gateway has for it', () => {
    storeDraft('main', 'Half a thought');
    storeFiles('main', [file('a.txt')]);
    renameDraft('main', KEY);
    expect(loadDraft(KEY)).toBe('Half a thought');
    expect(draftFiles(KEY)).toEqual([file('a.txt')]);
    expect([loadDraft('main'), draftFiles('main')]).toEqual(['', []]);
  });

  it('have what was written before the first connection', () => {
    storeDraft('', 'Early words');
    expect(loadDraft(KEY)).toBe('Early words');
    expect(loadDraft('')).toBe('');
    expect(loadDraft(KEY)).toBe('Early words');
  });
});
