// Messages on their way to the gateway. Each keeps its idempotency key until the gateway has
// answered, so that a message that is sent again after a broken connection is not accepted twice.

const STORED = 'outbox';
const MAX_STORED_CHARS = 2_000_000; // of the browser's storage for a tab

export class Outbox {
  #entries = [];

  constructor() {
    try {
      const stored = JSON.parse(sessionStorage.getItem(STORED) ?? '[]');
      this.#entries = stored.map((entry) => ({ ...entry, state: 'waiting' }));
    } catch {
      sessionStorage.removeItem(STORED);
    }
  }

  add(entry) {
    this.#entries.push({ ...entry, state: 'waiting' });
    this.#store();
    return this.#entries.at(-1);
  }

  of(session) {
    return this.#entries.filter((entry) => entry.session === session);
  }

  /** The next message to send. Those of a conversation are sent one after another. */
  next() {
    const isBusy = (session) => this.of(session).some(({ state }) => state === 'sending');
    return this.#entries.find(({ state, session }) => state === 'waiting' && !isBusy(session));
  }

  find(runId) {
    return this.#entries.find((entry) => entry.runId === runId);
  }

  remove(runId) {
    this.#entries = this.#entries.filter((entry) => entry.runId !== runId);
    this.#store();
  }

  update(entry, state) {
    entry.state = state;
    this.#store();
  }

  /** Keep what the gateway has not confirmed, for a reload of the page. */
  #store() {
    const open = this.#entries.filter(({ state }) => state === 'waiting' || state === 'sending');
    const kept = [];
    let left = MAX_STORED_CHARS;
    for (const { runId, session, text, images } of open) {
      const entry = { runId, session, text, images };
      left -= JSON.stringify(entry).length;
      if (left >= 0) kept.push(entry); // one that is larger lasts as long as the page is open
    }
    try {
      sessionStorage.setItem(STORED, JSON.stringify(kept));
    } catch {
      // The storage is full: the messages are kept as long as the page is open.
    }
  }
}
