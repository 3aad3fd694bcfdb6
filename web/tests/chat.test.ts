import { describe, expect, it } from 'vitest';
import { matchCommands } from '../src/pages/chat/CommandPalette';
import { chunkTurns, costOf } from '../src/pages/chat/chunks';
import { fileNameOf, toMarkdown } from '../src/pages/chat/exportChat';
import { keepNewest, MAX_MESSAGES } from '../src/pages/chat/kept';
import { isSettled, LiveRun } from '../src/pages/chat/liveRun';
import { addNewer } from '../src/pages/chat/spent';
import { describeState, diffOf, subjectOf } from '../src/pages/chat/toolView';
import { buildTurns, reuseMessages, splitFiles } from '../src/pages/chat/turns';
import type { EventPayloads } from '../src/protocol/protocol.generated';
import type { HistoryMessage, Part } from '../src/protocol/results';
import { parsePlan } from '../src/state/plan';

type AgentEvent = EventPayloads['agent'];

function message(role: string, id: string, content: Part[], more: Partial<HistoryMessage> = {}): HistoryMessage {
  return { role, content, timestamp: 1_000, __openclaw: { id }, ...more };
}

const text = (words: string): Part => ({ type: 'text', text: words });
const call = (id: string): Part => ({ type: 'toolCall', id, name: 'read', arguments: { path: 'a.md' } });

function event(stream: string, data: object): AgentEvent {
  return { runId: 'r', seq: 1, ts: 5, sessionKey: 'k', stream, data } as AgentEvent;
}

describe('buildTurns', () => {
  it('joins an answer with its tool calls and their results', () => {
    const turns = buildTurns([
      message('user', 'u', [text('hi')]),
      message('assistant', 'a', [text('I look.'), call('c1')], { usage: { totalTokens: 10, cost: { total: 0.1 } } }),
      message('toolResult', 't', [text('content')], { toolCallId: 'c1', timestamp: 2_000 }),
      message('assistant', 'b', [text('Done.')], { model: 'm', usage: { totalTokens: 5 } }),
    ]);
    expect(turns.map(({ kind }) => kind)).toEqual(['question', 'answer']);
    const answer = turns[1];
    if (answer?.kind !== 'answer') throw new Error('no answer');
    expect(answer.blocks.map(({ kind }) => kind)).toEqual(['text', 'tool', 'text']);
    expect(answer.blocks[1]).toMatchObject({ output: 'content', isRunning: false });
    expect(answer.figures).toMatchObject({ model: 'm', tokens: 15, costUsd: 0.1 });
    expect(answer.messageId).toBe('b');
  });

  it('builds a turn once while its messages stay the same', () => {
    const messages = [message('user', 'u', [text('hi')]), message('assistant', 'a', [text('yes')])];
    const copies = messages.map((each) => structuredClone(each));
    expect(buildTurns(reuseMessages(copies, messages))[1]).toBe(buildTurns(messages)[1]);
  });

  it('names files that were attached', () => {
    const named = 'look\n[media attached: /x/media/inbound/ab12.csv (text/csv, people.csv)]';
    expect(splitFiles(named)).toEqual({ text: 'look', files: ['people.csv'] });
    expect(splitFiles('[media attached: /x/ab.png (image/png)]').files).toEqual(['ab.png']);
  });

  it('says that an answer was stopped or failed', () => {
    const [stopped] = buildTurns([message('assistant', 'a', [text('x')], { openclawAbort: { aborted: true } })]);
    expect(stopped).toMatchObject({ note: 'Stopped.', isError: false });
    const [failed] = buildTurns([message('assistant', 'a', [], { errorMessage: 'no money' })]);
    expect(failed).toMatchObject({ note: 'no money', isError: true });
  });
});

describe('chunkTurns', () => {
  const turns = (count: number, from = 0) =>
    buildTurns(Array.from({ length: count }, (_, at) => message('user', `u${from + at}`, [text('hi')])));

  it('keeps chunks when older and newer turns come', () => {
    const boundaries = new Set<string>();
    const before = chunkTurns(turns(24, 100), boundaries).map((chunk) => chunk[0]?.key);
    const after = chunkTurns(turns(140, 0), boundaries).map((chunk) => chunk[0]?.key);
    expect(before).toEqual(['u100', 'u106', 'u112', 'u118']);
    expect(after).toEqual(expect.arrayContaining(before));
  });
});

describe('A chunk', () => {
  const answer = (id: string, chars: number) => buildTurns([message('assistant', id, [text('x'.repeat(chars))])]);

  it('ends with a long answer', () => {
    const turns = [...answer('a', 10), ...answer('b', 20_000), ...answer('c', 10), ...answer('d', 10)];
    expect(chunkTurns(turns, new Set()).map((chunk) => chunk.map(({ key }) => key))).toEqual([['a', 'b'], ['c', 'd']]);
  });

  it('costs what its text takes to be parsed', () => {
    const [short, long] = [...answer('a', 100), ...answer('b', 20_000)].map(costOf);
    expect(long).toBeGreaterThan(10 * (short ?? 0));
  });

  it('is forgotten with its turns', () => {
    const boundaries = new Set(Array.from({ length: 300 }, (_, at) => `gone${at}`));
    chunkTurns(answer('a', 10), boundaries);
    expect([...boundaries]).toEqual(['a']);
  });
});

describe('keepNewest', () => {
  const many = (count: number) =>
    Array.from({ length: count }, (_, at) => message(at % 3 ? 'assistant' : 'user', `m${at}`, [text('hi')]));

  it('keeps all while they are few', () => {
    const messages = many(MAX_MESSAGES);
    expect(keepNewest(messages)).toBe(messages);
  });

  it('keeps the newest, from a question on', () => {
    const messages = many(MAX_MESSAGES + 1);
    const kept = keepNewest(messages);
    expect(kept.length).toBeLessThan(MAX_MESSAGES);
    expect(kept[0]?.role).toBe('user');
    expect(kept.at(-1)).toBe(messages.at(-1));
  });
});

describe('addNewer', () => {
  const costing = (timestamp: number): HistoryMessage =>
    message('assistant', `m${timestamp}`, [], { timestamp, usage: { totalTokens: 10, cost: { total: 0.5 } } });

  it('counts what is newer than what is stored', () => {
    const stored = { tokens: 1_000, costUsd: 7, untilMs: 20 };
    expect(addNewer(stored, [costing(10), costing(20), costing(30)])).toMatchObject({ tokens: 1_010, costUsd: 7.5 });
  });

  it('counts all messages when nothing is stored', () => {
    expect(addNewer(null, [costing(10), costing(20)])).toMatchObject({ tokens: 20, costUsd: 1 });
  });
});

describe('LiveRun', () => {
  it('is settled when it ended, and failed only once the history goes on', () => {
    const run = new LiveRun('r');
    expect(isSettled(run, [])).toBe(false);
    run.state = 'done';
    expect(isSettled(run, [])).toBe(true);
    run.state = 'failed';
    expect(isSettled(run, [message('user', 'u', [])])).toBe(false);
    expect(isSettled(run, [message('user', 'u', []), message('user', 'v', [])])).toBe(true);
  });

  it('collects text, thinking and tools in order', () => {
    const run = new LiveRun('r');
    run.handle(event('thinking', { text: 'hm', delta: 'hm' }));
    run.handle(event('assistant', { text: 'I', delta: 'I' }));
    run.handle(event('assistant', { text: 'I look', delta: ' look' }));
    run.handle(event('tool', { phase: 'start', name: 'read', toolCallId: 'c', args: { path: 'a' } }));
    run.handle(event('tool', { phase: 'update', name: 'read', toolCallId: 'c', partialResult: { content: [{ text: 'half' }] } }));
    run.catchUp('I look'); // a delta that arrives late
    expect(run.blocks.map(({ kind }) => kind)).toEqual(['thinking', 'text', 'tool']);
    expect(run.blocks[2]).toMatchObject({ output: 'half', isRunning: true });
    run.handle(event('tool', { phase: 'result', name: 'read', toolCallId: 'c', isError: true, result: { content: [{ text: 'all' }] } }));
    expect(run.blocks[2]).toMatchObject({ output: 'all', isRunning: false, isError: true });
    run.handle(event('assistant', { text: 'Done', delta: 'Done' }));
    expect(run.text).toBe('Done');
  });

  it('leaves out what the history has', () => {
    const run = new LiveRun('r');
    run.handle(event('assistant', { text: 'I look', delta: '' }));
    run.handle(event('tool', { phase: 'start', name: 'read', toolCallId: 'c', args: {} }));
    run.handle(event('assistant', { text: 'Now', delta: '' }));
    run.prune([message('assistant', 'a', [text('I look'), call('c')])]);
    expect(run.blocks).toHaveLength(1);
    expect(run.text).toBe('Now');
    run.prune([message('assistant', 'b', [text('Now')])]);
    expect(run.blocks).toHaveLength(0);
  });

  it('discards the text of a failed attempt', () => {
    const run = new LiveRun('r');
    run.handle(event('assistant', { text: 'Half', delta: '' }));
    run.handle(event('lifecycle', { phase: 'fallback', provider: 'p', model: 'm', error: 'slow' }));
    expect(run.blocks).toHaveLength(0);
    expect(run.notice).toContain('slow');
  });
});

describe('tools', () => {
  it('show the diff of an edit', () => {
    const lines = diffOf({ name: 'edit', args: { path: 'a', oldText: 'x', newText: 'y' } });
    expect(lines?.map(({ kind }) => kind)).toEqual(['del', 'add']);
    expect(diffOf({ name: 'exec', args: { command: 'ls' } })).toBeNull();
  });

  it('are described by their main argument', () => {
    expect(subjectOf({ args: { timeout: 5, command: 'ls -la\nrm' } })).toBe('ls -la rm');
    expect(subjectOf({ args: { a: 1, b: 'x' } })).toBe('a=1 b=x');
  });
});

describe('describeState', () => {
  const open = { startedAtMs: 1_000, endedAtMs: 0, isRunning: true };

  it('says that a call waits for an approval, and does not run', () => {
    expect(describeState(open, true)).toEqual({ words: 'waiting for approval', tone: 'warn' });
    expect(describeState({ ...open, isRunning: false }, true).words).toBe('waiting for approval');
    expect(describeState(open, false)).toEqual({ words: 'running', tone: 'accent' });
  });

  it('says how long a call took', () => {
    expect(describeState({ startedAtMs: 1_000, endedAtMs: 3_000, isRunning: false }, true)).toEqual({ words: '2.0 s', tone: null });
  });
});

describe('parsePlan', () => {
  it('separates the command from the facts', () => {
    const detail = 'folder: /ws\nasked because: no entry\ncommand (5 characters):\n    ls -l';
    expect(parsePlan(detail, 'no entry')).toEqual({ body: 'ls -l', rows: [['Folder', '/ws']] });
  });

  it('shows a text of another form as it is', () => {
    expect(parsePlan('folder: /ws\n!!\ncommand (2 characters):\n    ls', '').rows).toEqual([]);
    expect(parsePlan('command (2 characters):\n    ls\nrm -rf', '').body).toContain('rm -rf');
  });
});

describe('commands', () => {
  const rows = [
    { name: 'status', description: 'Show the status', textAliases: ['/status'] },
    { name: 'think', description: 'Set the level', textAliases: ['/think', '/t'] },
  ];

  it('are found by their start and by an alias', () => {
    expect(matchCommands('/st', rows).map(({ name }) => name)).toEqual(['status']);
    expect(matchCommands('/t', rows).map(({ name }) => name)).toEqual(['think']);
    expect(matchCommands('/status now', rows)).toEqual([]);
    expect(matchCommands('hello', rows)).toEqual([]);
  });
});

describe('export', () => {
  it('writes what was said and done', () => {
    const shown = toMarkdown('Title', [message('user', 'u', [text('hi')]), message('assistant', 'a', [text('**yes**'), call('c')])]);
    expect(shown).toContain('# Title');
    expect(shown).toContain('**yes**');
    expect(shown).toContain('> **read** `a.md`');
    expect(fileNameOf('Flat in Kiel: ../../x', 'md')).toBe('flat-in-kiel-x.md');
  });
});
