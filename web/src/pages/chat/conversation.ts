/** One conversation: its history, what happens now, and both without doubles. */

import { batch, signal } from '@preact/signals';
import { call, onClose, onEvent, onOpen } from '../../gateway/gateway';
import type { EventPayloads } from '../../protocol/protocol.generated';
import type { HistoryMessage, SessionRow } from '../../protocol/results';
import { announce } from '../../state/announce';
import { renameDraft } from './drafts';
import { keepNewest } from './kept';
import type { LiveRun } from './liveRun';
import { LiveRuns } from './liveRuns';
import { discard, markDropped, onSent, outgoing, renameOutgoing, type Outgoing } from './outbox';
import { SessionSpent } from './spent';
import { idOf, reuseMessages, textOf, type ToolBlock } from './turns';

const PAGE_MESSAGES = 50;
const MAX_CHARS = 50_000; // of one text; a longer one is loaded by itself
const REFRESH_MS = 250;
const SENT_MS = 60_000; // in which a message that was accepted is in the history, or its run under way
const RECENT = 30; // messages that are compared with what was sent
// A long text is drawn less often, so that the page stays usable.
const SLOW_CHARS = 20_000;
const SLOW_MS = 120;

/** Follows one session from `start` to `stop`. */
export class Conversation {
  readonly messages = signal<readonly HistoryMessage[]>([]);
  readonly runs = signal<readonly LiveRun[]>([]);
  readonly info = signal<SessionRow | null>(null);
  readonly thinking = signal('');
  readonly hasOlder = signal(false);
  readonly isLoaded = signal(false);
  readonly error = signal<unknown>(null);
  /** Why older messages could not be loaded; they are then loaded when the person asks again. */
  readonly olderError = signal<unknown>(null);
  readonly spent = new SessionSpent();
  /** Whether the reader is at the end, where older messages are not needed. */
  isAtEnd = true;
  /** Counts what was drawn: the log stays at its end when it was there. */
  readonly version = signal(0);

  #key: string;
  readonly #live = new LiveRuns();
  #loads = 0;
  #loaded = 0; // the newest load that was answered
  readonly #aborted = new Map<string, number>(); // by run, how many loads were requested before
  #ends: (() => void)[] = [];
  #frame = 0;
  #drawnAt = 0;
  #refreshTimer: ReturnType<typeof setTimeout> | undefined;
  #isLoadingOlder = false;

  constructor(key: string) {
    this.#key = key;
  }

  /** The stored form of the key, once the history was loaded. */
  get key(): string {
    return this.#key;
  }

  start(): void {
    this.#ends = [
      onOpen(() => void this.load()),
      onClose(() => this.#live.markStale()),
      onEvent('agent', (event) => this.#handleAgent(event)),
      onEvent('chat', (event) => this.#handleChat(event)),
      onEvent('session.message', ({ sessionKey, session }) => {
        if (sessionKey !== this.#key) return;
        if (session) this.info.value = session as unknown as SessionRow;
        this.#refreshSoon();
      }),
      onEvent('sessions.changed', ({ sessionKey, session, reason }) => {
        if (sessionKey !== this.#key) return;
        if (session) this.info.value = session as unknown as SessionRow;
        if (reason) this.#refreshSoon();
      }),
      onSent((entry, result) => this.#handleSent(entry, result)),
    ];
  }

  stop(): void {
    for (const end of this.#ends) end();
    clearTimeout(this.#refreshTimer);
    cancelAnimationFrame(this.#frame);
  }

  /** Load the newest messages, and put them behind the older ones that are there already. */
  async load(): Promise<void> {
    const turn = ++this.#loads;
    try {
      const params = { sessionKey: this.#key, limit: PAGE_MESSAGES, maxChars: MAX_CHARS };
      const page = await call('chat.history', params);
      if (turn < this.#loaded) return; // a newer answer came first
      this.#loaded = turn;
      batch(() => {
        this.#rename(page.sessionKey);
        const known = this.messages.value;
        const newest = reuseMessages(page.messages, known.slice(-2 * PAGE_MESSAGES));
        const at = newest.length ? known.findIndex((message) => idOf(message) === idOf(newest[0])) : -1;
        if (at < 0) this.hasOlder.value = page.hasMore ?? false;
        this.messages.value = at < 0 ? newest : [...known.slice(0, at), ...newest];
        this.#forgetOld();
        if (page.sessionInfo) this.info.value = page.sessionInfo;
        this.thinking.value = page.thinkingLevel ?? '';
        this.error.value = null;
        this.isLoaded.value = true;
        this.#settle(newest, turn);
      });
      void this.spent.load(this.#key, page.sessionId);
    } catch (error) {
      if (turn > this.#loaded) this.error.value = error;
    }
  }

  #rename(key: string): void {
    if (key === this.#key) return;
    renameDraft(this.#key, key);
    renameOutgoing(this.#key, key);
    this.#key = key;
  }

  async loadOlder(): Promise<void> {
    const before = idOf(this.messages.value[0]);
    if (this.#isLoadingOlder || !before || !this.hasOlder.value) return;
    this.#isLoadingOlder = true;
    try {
      const params = { sessionKey: this.#key, limit: PAGE_MESSAGES, maxChars: MAX_CHARS, before };
      const page = await call('chat.history', params);
      if (idOf(this.messages.value[0]) !== before) return; // another part of the history was loaded meanwhile
      batch(() => {
        this.messages.value = [...page.messages, ...this.messages.value];
        this.hasOlder.value = page.hasMore ?? false;
        this.olderError.value = null;
      });
    } catch (error) {
      this.olderError.value = error;
    } finally {
      this.#isLoadingOlder = false;
    }
  }

  /** What was said long ago is loaded again when it is read. */
  #forgetOld(): void {
    const kept = this.isAtEnd ? keepNewest(this.messages.value) : this.messages.value;
    if (kept === this.messages.value) return;
    this.messages.value = kept;
    this.hasOlder.value = true;
    this.spent.expire();
  }

  async abort(): Promise<void> {
    const { runIds } = await call('chat.abort', { sessionKey: this.#key });
    for (const { runId } of this.#live.list) if (!runIds.includes(runId)) this.#endRun(runId, 'stopped');
  }

  /** Return a tool's newest state: the history has none of the output of one that runs. */
  findTool(id: string): ToolBlock | undefined {
    return this.#live.findTool(id);
  }

  #handleAgent(event: EventPayloads['agent']): void {
    if (event.sessionKey !== this.#key) return;
    if (event.stream === 'lifecycle' && event.data.phase !== 'start' && event.data.phase !== 'fallback') return;
    this.#live.get(event.runId).handle(event);
    this.#draw();
  }

  #handleChat({ runId, sessionKey, state, message, errorMessage }: EventPayloads['chat']): void {
    if (sessionKey !== this.#key) return;
    const text = textOf(message?.content ?? []);
    if (state === 'delta') {
      this.#live.get(runId).catchUp(text);
      this.#draw();
      return;
    }
    const run = this.#live.get(runId);
    if (text && !run.text.endsWith(text)) run.setText(text);
    run.error = errorMessage ?? '';
    if (state === 'aborted') this.#aborted.set(runId, this.#loads);
    this.#endRun(runId, state === 'error' ? 'failed' : state === 'aborted' ? 'stopped' : 'done');
    announce(run.text || errorMessage || (state === 'aborted' ? 'The answer was stopped.' : 'The agent has answered.'));
    this.#refreshSoon();
  }

  #handleSent(entry: Outgoing, { status, aborted }: { status?: string; aborted?: boolean }): void {
    if (entry.sessionKey !== this.#key) return;
    if (aborted !== undefined) discard(entry.runId); // a word that stops
    if (status === 'ok') this.#refreshSoon(); // it was answered while the connection was lost
  }

  #endRun(runId: string, state: LiveRun['state']): void {
    const run = this.#live.get(runId);
    run.state = state;
    for (const [id, tool] of run.tools) if (tool.isRunning) run.tools.set(id, { ...tool, isRunning: false });
    run.blocks = run.blocks.map((block) => (block.kind === 'tool' ? (run.tools.get(block.id) ?? block) : block));
    this.#draw();
  }

  /** Remove what the history has: runs that ended, blocks of others, and messages that were sent. */
  #settle(newest: readonly HistoryMessage[], turn: number): void {
    this.#live.settle(newest);
    const recent = newest.filter(({ role }) => role === 'user').slice(-RECENT);
    const keys = new Set(recent.map(({ idempotencyKey }) => idempotencyKey));
    const texts = new Set(recent.map(({ content }) => textOf(content).trim()));
    const row = this.info.value;
    const isIdle = row !== null && !row.hasActiveRun && !row.queueDepth;
    for (const { runId, state, text, sessionKey, atMs } of outgoing.value) {
      if (sessionKey !== this.#key || state === 'refused') continue;
      const isStored = keys.has(`${runId}:user`) || (state === 'sent' && text !== '' && texts.has(text));
      const isPast = state === 'sent' && isIdle && atMs < Date.now() - SENT_MS; // an older part of the history has it
      if (isStored || isPast) discard(runId);
      // It waited for its turn: a stop ends that too.
      else if (turn > (this.#aborted.get(runId) ?? turn)) markDropped(runId, 'Stopped before the agent read it.');
    }
    this.#drawNow();
  }

  #refreshSoon(): void {
    this.#refreshTimer ??= setTimeout(() => {
      this.#refreshTimer = undefined;
      void this.load();
    }, REFRESH_MS);
  }

  /** Draw with the next frame: a hundred events in a frame are drawn once. */
  #draw(): void {
    if (this.#frame) return;
    const isLong = this.#live.list.some((run) => run.text.length > SLOW_CHARS);
    const waitMs = isLong ? Math.max(0, this.#drawnAt + SLOW_MS - performance.now()) : 0;
    const request = (): void => {
      this.#frame = requestAnimationFrame(() => this.#drawNow());
    };
    if (waitMs) {
      this.#frame = -1;
      setTimeout(request, waitMs);
    } else request();
  }

  #drawNow(): void {
    this.#frame = 0;
    this.#drawnAt = performance.now();
    this.runs.value = this.#live.list;
    this.version.value++;
  }
}
