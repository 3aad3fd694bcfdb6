// The chat page: one conversation at a time, as the gateway tells it.

import { element, nodes } from './markup.js';
import { Refused, Wire, randomId } from './wire.js';

const HISTORY = 200;
const SESSIONS = 50;
const PAIRING_RETRY_MS = 5_000;
const REFRESH_MS = 300;
const SHOWN_CHARS = 20_000; // of one tool's output
const NEAR_PX = 80;

const $ = (id) => document.getElementById(id);
const log = $('log');
const text = $('text');

// OpenClaw's links name a conversation (`/chat?session=…`).
const linkedSession = new URLSearchParams(location.search).get('session');
if (linkedSession) sessionStorage.setItem('session', linkedSession);
let session = sessionStorage.getItem('session') || '';
let defaults = {};
let refresh = 0;
let unsent = null; // {text}: asked to send, no answer yet
const runs = new Map(); // run id → Answer, of what is under way in this conversation

// `homarus dashboard` prints the address with the token behind a #, which is not sent anywhere.
const linked = new URLSearchParams(location.hash.slice(1)).get('token');
if (linked) sessionStorage.setItem('token', linked.trim());
if (location.search || location.hash) {
  history.replaceState(null, '', location.pathname); // may hold a secret
}

const wire = new Wire({
  // This browser's own token is of no use without its key, which stays in the browser.
  secret: () => sessionStorage.getItem('token') || localStorage.getItem('deviceToken') || '',
  on: {
    open: opened,
    event: heard,
    missed: refreshSoon,
    refused,
    lost: () => setRuns(() => runs.clear()),
    waiting: () => showState('lost', 'Reconnecting…'),
  },
});

// ---- connection ----

function opened(hello) {
  showState('open', 'Connected');
  notice('');
  $('sign-in').hidden = true;
  if (hello.auth?.deviceToken) localStorage.setItem('deviceToken', hello.auth.deviceToken);
  defaults = hello.snapshot?.sessionDefaults ?? {};
  session ||= defaults.mainSessionKey || 'agent:main:main';
  for (const id of ['sessions', 'new', 'send']) $(id).disabled = false;
  showHistory();
  showSessions();
  text.focus();
}

function refused(error) {
  showState('refused', 'Not connected');
  $('send').disabled = true;
  if (error.code === 'NOT_PAIRED' && error.details.requestId) {
    notice(`This browser waits to be approved on the gateway (request ${error.details.requestId}).`);
    setTimeout(() => wire.connect(), PAIRING_RETRY_MS);
  } else if (error.code === 'NOT_PAIRED') {
    notice(
      'This browser has no device key here. Open the page by https, or by localhost on the ' +
        `gateway's own machine. (${error.message})`,
    );
  } else if (error.message.startsWith('unauthorized')) askForToken(error);
  else notice(`The gateway refused: ${error.message}`);
}

function askForToken(error) {
  const tried = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  if (!tried) localStorage.removeItem('deviceToken');
  $('sign-in-why').textContent = tried ? error.message : 'This gateway asks who you are.';
  $('sign-in').hidden = false;
  $('token').focus();
}

$('sign-in-form').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem('token', $('token').value.trim());
  $('token').value = '';
  $('sign-in').hidden = true;
  showState('connecting', 'Connecting…');
  wire.connect();
});

function showState(state, words) {
  $('state').dataset.state = state;
  $('state').textContent = words;
}

function notice(words) {
  $('notice').textContent = words;
  $('notice').hidden = !words;
}

// ---- what the gateway tells ----

function heard(name, payload) {
  if (name === 'shutdown') notice('The gateway is stopping; this page comes back by itself.');
  if (name === 'gap') refreshSoon(); // we were too slow for something
  if (name === 'chat' && payload.sessionKey !== session) {
    if (payload.state !== 'delta') refreshSoon();
  } else if (name === 'chat') heardChat(payload);
  else if (name === 'agent' && payload.sessionKey === session) heardAgent(payload);
}

function heardAgent({ runId, stream, data = {} }) {
  if (stream === 'lifecycle' && data.phase === 'start') answer(runId);
  if (stream === 'tool') keepingPlace(() => answer(runId).tool(data));
}

function heardChat({ runId, state, message, errorMessage }) {
  const isOurs = runs.get(runId)?.isOurs;
  const said = textOf(message?.content);
  keepingPlace(() => {
    const shown = answer(runId);
    if (state === 'delta') shown.say(said);
    else leave(runId);
    if (state === 'final') shown.end(said);
    if (state === 'aborted') shown.end(said, 'Stopped.');
    if (state === 'error') shown.end('', errorMessage || 'The answer failed.', 'error');
  });
  if (state !== 'delta') isOurs ? showSessions() : refreshSoon(); // another client's question
}

/** The answer being made by a run, begun if this page did not know of it. */
function answer(runId, isOurs = false) {
  let found = runs.get(runId);
  if (!found) {
    found = new Answer(isOurs);
    log.append(found.box);
    setRuns(() => runs.set(runId, found));
  }
  return found;
}

/** A run is over. One that never said a word had its question answered by this one. */
function leave(runId) {
  setRuns(() => runs.delete(runId));
  for (const [other, { isSilent }] of [...runs]) if (isSilent) forget(other);
}

function setRuns(change) {
  change();
  $('stop').hidden = runs.size === 0;
}

function refreshSoon() {
  clearTimeout(refresh);
  refresh = setTimeout(() => {
    showSessions();
    if (!runs.size) showHistory();
  }, REFRESH_MS);
}

// ---- the log ----

/** One answer: its words and its tools, in the order they came. */
class Answer {
  box = article('assistant');
  #before = ''; // what was said before the last tool
  #said = '';
  #block = null;
  #tools = new Map();

  constructor(isOurs) {
    this.isOurs = isOurs; // asked by this page
    this.box.dataset.live = '';
    this.box.setAttribute('aria-busy', 'true'); // read out when it is whole
  }

  get isSilent() {
    return this.box.childElementCount === 0;
  }

  /** `all` is everything said so far; a gateway may count from the last tool, or from the start. */
  say(all) {
    this.#said = all;
    const part = all.startsWith(this.#before) ? all.slice(this.#before.length) : all;
    if (!this.#block) {
      if (!part.trim()) return;
      this.#block = element('div');
      this.box.append(this.#block);
    }
    this.#block.replaceChildren(nodes(part));
  }

  tool({ phase, toolCallId, name, args, isError, result, partialResult }) {
    if (this.#block) [this.#before, this.#block] = [this.#said, null];
    let line = this.#tools.get(toolCallId);
    if (!line) {
      line = toolLine(name, args);
      this.#tools.set(toolCallId, line);
      this.box.append(line.box);
    }
    if (phase === 'update') line.show(textOf(partialResult?.content));
    if (phase === 'result') line.end(textOf(result?.content), isError);
  }

  end(said, mark = '', kind = 'aside') {
    delete this.box.dataset.live;
    this.box.removeAttribute('aria-busy');
    for (const line of this.#tools.values()) line.settle();
    if (said) this.say(said);
    if (mark) this.box.append(note(mark, kind));
    if (!this.box.childElementCount) this.box.remove(); // it chose to say nothing
  }
}

/** One tool at work: what it was asked, and, folded away, what it said. */
function toolLine(name, args) {
  const summary = element('summary', element('b', String(name ?? 'tool')), ` ${briefly(args)}`);
  const output = element('pre');
  const box = element('details', summary, output);
  box.className = 'tool';
  box.dataset.state = 'running';
  const show = (words) => {
    if (!words) return;
    const rest = words.length - SHOWN_CHARS;
    output.textContent = rest > 0 ? `${words.slice(0, SHOWN_CHARS)}\n… ${rest} more` : words;
  };
  const settle = () => {
    if (box.dataset.state === 'running') box.dataset.state = 'stopped';
  };
  const end = (words, isError) => {
    show(words);
    box.dataset.state = isError ? 'failed' : 'done';
  };
  return { box, show, end, settle };
}

function briefly(args) {
  if (!args || typeof args !== 'object') return '';
  const values = Object.values(args).map((one) => (typeof one === 'string' ? one : JSON.stringify(one)));
  const words = values.join(' ').replace(/\s+/g, ' ');
  return words.length > 160 ? `${words.slice(0, 160)}…` : words;
}

function article(role) {
  const box = element('article');
  box.dataset.role = role;
  box.setAttribute('aria-label', role === 'user' ? 'You' : 'Homarus');
  return box;
}

function note(words, kind) {
  const made = element('p', words);
  made.className = kind;
  return made;
}

function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  const texts = content.map((part) => {
    if (part?.type === 'text') return String(part.text ?? '');
    return part?.type === 'image' ? '[image]' : '';
  });
  return texts.filter(Boolean).join('\n');
}

/** The messages of a transcript as nodes. */
function transcript(messages) {
  const made = document.createDocumentFragment();
  const tools = new Map();
  let goesOn = false; // after a tool, the same answer goes on
  for (const message of messages) {
    if (message.role === 'toolResult') {
      tools.get(message.toolCallId)?.end(textOf(message.content), message.isError);
      goesOn = true;
      continue;
    }
    if (message.role !== 'user' && message.role !== 'assistant') continue;
    const last = goesOn && message.role === 'assistant' ? made.lastElementChild : null;
    const box = last?.dataset.role === 'assistant' ? last : article(message.role);
    goesOn = false;
    const said = textOf(message.content);
    if (message.timestamp) box.title = new Date(message.timestamp).toLocaleString();
    if (said) box.append(element('div', nodes(said)));
    for (const part of Array.isArray(message.content) ? message.content : []) {
      if (part?.type !== 'toolCall') continue;
      const line = toolLine(part.name, part.arguments);
      tools.set(part.id, line);
      box.append(line.box);
    }
    if (message.openclawAbort || message.stopReason === 'aborted') box.append(note('Stopped.', 'aside'));
    if (message.errorMessage) box.append(note(String(message.errorMessage), 'error'));
    if (box !== last && box.childElementCount) made.append(box);
  }
  for (const line of tools.values()) line.settle();
  return made;
}

/** Change the log; who reads the end goes on reading the end. */
function keepingPlace(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function showHistory() {
  const asked = session;
  try {
    const params = { sessionKey: asked, limit: HISTORY };
    const { sessionKey = asked, messages = [] } = await wire.call('chat.history', params);
    if (asked !== session) return;
    session = sessionKey; // a link may have its short form, events have the full one
    keepingPlace(() => {
      log.replaceChildren(transcript(messages));
      for (const { box } of runs.values()) log.append(box); // what began meanwhile
    });
    restoreUnsent(messages);
  } catch (error) {
    explain(error);
  }
}

/** A message the connection broke under: given back, unless the gateway has it. */
function restoreUnsent(messages) {
  if (!unsent || unsent.pending) return;
  const lost = unsent.text;
  unsent = null;
  const said = messages.filter((one) => one.role === 'user').slice(-5);
  if (said.some((one) => textOf(one.content).includes(lost))) return;
  if (!text.value) text.value = lost;
  grow();
  notice('The connection broke before your last message was taken; it is back in the field.');
}

// ---- conversations ----

async function showSessions() {
  try {
    const asked = { limit: SESSIONS, includeDerivedTitles: true };
    const { sessions = [] } = await wire.call('sessions.list', asked);
    const names = new Map([[session, session]]);
    if (defaults.mainSessionKey) names.set(defaults.mainSessionKey, 'Main');
    for (const { key, label, displayName, derivedTitle } of sessions)
      names.set(key, label || displayName || derivedTitle || names.get(key) || key);
    const options = Array.from(names, ([key, name]) => {
      const option = element('option', name.length > 60 ? `${name.slice(0, 60)}…` : name);
      option.value = key;
      option.title = key;
      return option;
    });
    $('sessions').replaceChildren(...options);
    $('sessions').value = session;
  } catch (error) {
    explain(error);
  }
}

function openSession(key) {
  session = key;
  sessionStorage.setItem('session', key);
  setRuns(() => runs.clear());
  notice('');
  log.replaceChildren();
  showHistory();
  showSessions();
  text.focus();
}

$('sessions').addEventListener('change', () => openSession($('sessions').value));
$('new').addEventListener('click', () =>
  openSession(`agent:${defaults.defaultAgentId || 'main'}:web-${randomId().slice(0, 12)}`),
);

// ---- asking ----

async function send() {
  const message = text.value.trim();
  if (!message || !wire.isOpen) return;
  const asked = session;
  const runId = randomId();
  const question = article('user');
  question.append(element('div', nodes(message)));
  text.value = '';
  grow();
  notice('');
  log.append(question);
  answer(runId, true);
  log.scrollTop = log.scrollHeight;
  unsent = { text: message, pending: true };
  try {
    const params = { sessionKey: asked, message, idempotencyKey: runId };
    const { status, aborted } = await wire.call('chat.send', params);
    unsent = null;
    if (aborted !== undefined || status === 'ok') forget(runId); // a word that stops, or a repeat
  } catch (error) {
    forget(runId);
    if (error instanceof Refused) unsent = null;
    else if (unsent) unsent.pending = false;
    explain(error);
  }
}

function forget(runId) {
  setRuns(() => {
    runs.get(runId)?.end('');
    runs.delete(runId);
  });
}

async function stop() {
  try {
    const { runIds = [] } = await wire.call('chat.abort', { sessionKey: session });
    for (const runId of [...runs.keys()]) if (!runIds.includes(runId)) forget(runId);
  } catch (error) {
    explain(error);
  }
}

function explain(error) {
  if (wire.isOpen) notice(error.message);
}

function grow() {
  text.style.height = 'auto';
  text.style.height = `${Math.min(text.scrollHeight, innerHeight / 3)}px`;
}

$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
$('stop').addEventListener('click', stop);
text.addEventListener('input', grow);
text.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && runs.size) stop();
});

wire.connect();
