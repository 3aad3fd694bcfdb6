import { signal } from '@preact/signals';
import { beforeEach, describe, expect, it, vi } from 'vitest';

vi.mock('../src/gateway/gateway', () => ({ isConnected: signal(false), call: vi.fn(), onOpen: vi.fn() }));

const { LiveRun } = await import('../src/pages/chat/liveRun');
const { discard, enqueue, outgoing } = await import('../src/pages/chat/outbox');
const { findRetry, retry } = await import('../src/pages/chat/retry');
const { buildTurns } = await import('../src/pages/chat/turns');

type Turns = ReturnType<typeof buildTurns>;
type Live = InstanceType<typeof LiveRun>;

const asked = { role: 'user', timestamp: 1, content: [{ type: 'text', text: 'Hello?' }], __openclaw: { id: 'q' } };
const failed = { role: 'assistant', timestamp: 2, content: [], errorMessage: '401', __openclaw: { id: 'a' } };
const turnsOf = (...messages: object[]): Turns => buildTurns(messages as unknown as Parameters<typeof buildTurns>[0]);
const HELLO = { runId: '', text: 'Hello?', attachments: [] };

function run(runId: string, state: Live['state']): Live {
  const made = new LiveRun(runId);
  made.state = state;
  return made;
}

describe('findRetry', () => {
  it('finds the message before an answer that failed', () => {
    expect(findRetry(turnsOf(asked, failed), [], [])).toEqual(HELLO);
  });

  it('finds the message of a run whose failure is not in the history', () => {
    expect(findRetry(turnsOf(asked), [run('r', 'failed')], [])).toEqual(HELLO);
  });

  it('finds a message with its files that the history does not have', () => {
    enqueue({ runId: 'r', sessionKey: 's', text: 'Look', attachments: [{ name: 'a.txt', mime: 'text/plain', bytes: 1, url: 'data:,a' }] });
    const unsent = outgoing.value.map((entry) => ({ ...entry, state: 'sent' as const }));
    expect(findRetry([], [run('r', 'failed')], unsent)).toMatchObject({ runId: 'r', text: 'Look', attachments: [{ name: 'a.txt' }] });
    expect(findRetry([], [run('other', 'failed')], unsent)).toBeNull();
    discard('r');
  });

  it.each([
    ['the answer was made', turnsOf(asked, { ...failed, errorMessage: undefined, content: [{ type: 'text', text: 'Hi' }] }), []],
    ['the answer was stopped', turnsOf(asked, { ...failed, openclawAbort: {} }), []],
    ['the conversation went on', turnsOf(asked, failed, { ...asked, __openclaw: { id: 'q2' } }), []],
    ['another answer is made', turnsOf(asked, failed), [run('r', 'running')]],
    ['another channel has asked', turnsOf({ ...asked, provenance: { sourceChannel: 'telegram' } }, failed), []],
    ['a picture was a part of it', turnsOf({ ...asked, content: [...asked.content, { type: 'image', index: 1 }] }, failed), []],
    ['nothing was asked', turnsOf(failed), []],
  ])('finds nothing when %s', (_, turns, runs) => {
    expect(findRetry(turns, runs, [])).toBeNull();
  });
});

describe('retry', () => {
  beforeEach(() => outgoing.value.forEach(({ runId }) => discard(runId)));

  it('sends the same message with a key of its own, in place of the copy of the page', () => {
    enqueue({ runId: 'r', sessionKey: 's', text: 'Hello?', attachments: [] });
    retry({ ...HELLO, runId: 'r' }, 's');
    expect(outgoing.value).toMatchObject([{ sessionKey: 's', text: 'Hello?', state: 'waiting' }]);
    expect(outgoing.value[0]?.runId).not.toBe('r');
  });
});
