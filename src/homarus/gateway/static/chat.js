// The chat page: one conversation at a time.

import { ApprovalCards } from './approvals.js';
import { Attachments, imagesOf } from './attachments.js';
import { DeviceRequests } from './devices.js';
import { element, visible } from './markdown.js';
import { Outbox } from './outbox.js';
import {
  Answer,
  articleOf,
  groupsOf,
  hasFiles,
  note,
  questionOf,
  sourceOf,
  textOf,
  whenNear,
} from './transcript.js';
import { NoDeviceKeyError, Refused, Wire, randomId } from './wire.js';

const PAGE_MESSAGES = 50;
const MAX_CHARS = 50_000; // of one text; a longer one is loaded by itself
const SESSIONS = 50;
const PAIRING_RETRY_MS = 3_000;
const PENDING_MS = 5 * 60_000; // how long the gateway keeps a request of a device
const REFRESH_MS = 300;
const RESEND_MS = 3_000;
const NEAR_PX = 80;
const ANNOUNCED_CHARS = 1_000;
const OLD_SCOPES = ['operator.read', 'operator.write']; // of pages that stored none
const BASE_SCOPES = [...OLD_SCOPES, 'operator.approvals'];
const TOUCH = matchMedia('(hover: none) and (pointer: coarse)');

const $ = (id) => document.getElementById(id);
const log = $('log');
const past = $('past');
const now = $('now');
const text = $('text');

// OpenClaw's links name a conversation (`/chat?session=…`).
const linkedSession = new URLSearchParams(location.search).get('session');
if (linkedSession) sessionStorage.setItem('session', linkedSession);
let session = sessionStorage.getItem('session') || '';
let defaults = {};
let refreshTimer = 0;
let pairing = null; // {requestId, since}: this browser waits for an approval
let retryTimer = 0;
let countdown = 0;

let messages = []; // of this conversation, the loaded part of it
let articles = new Map(); // key of a group → its article
let isAtStart = false; // there are no older messages
let isLoadingOlder = false;

const runs = new Map(); // run id → Answer, of what is under way in this conversation
const questions = new Map(); // run id → question of this page that the history lacks
const outbox = new Outbox();
const attachments = new Attachments({ list: $('attached'), onProblem: notice });
const devices = new DeviceRequests({
  box: $('devices'),
  call: (method, params) => wire.call(method, params),
  announce,
});

const approvals = new ApprovalCards({
  box: $('approvals'),
  call: (method, params) => wire.call(method, params),
  announce,
  nameOf: (key) => (key === session ? 'this conversation' : key),
});

// `homarus dashboard` prints the address with the token behind a #, which is not sent anywhere.
const linked = new URLSearchParams(location.hash.slice(1)).get('token');
if (linked) sessionStorage.setItem('token', linked.trim());
if (location.search || location.hash) {
  history.replaceState(null, '', location.pathname); // may hold a secret
}

const wire = new Wire({
  // This browser's own token is of no use without its key, which stays in the browser.
  secret: () => sessionStorage.getItem('token') || localStorage.getItem('deviceToken') || '',
  scopes: requestedScopes,
  on: {
    open: opened,
    event: received,
    missed: refreshSoon,
    refused,
    lost,
    waiting,
  },
});

// ---- connection ----

/** On the gateway's own machine a page may also approve devices; elsewhere it asks for less. */
function requestedScopes() {
  const paired = localStorage.getItem('deviceScopes');
  if (localStorage.getItem('deviceToken')) return paired ? paired.split(',') : OLD_SCOPES;
  const isLocal = /^(?:localhost|.*\.localhost|127(?:\.\d+){3}|\[::1\])$/.test(location.hostname);
  return isLocal ? [...BASE_SCOPES, 'operator.pairing'] : BASE_SCOPES;
}

function opened(hello) {
  showState('open', 'Connected');
  announce('Connected.');
  notice('');
  pairing = null;
  for (const id of ['sign-in', 'problem', 'offline']) $(id).hidden = true;
  clearInterval(countdown);
  if (hello.auth?.deviceToken) {
    localStorage.setItem('deviceScopes', requestedScopes().join(','));
    localStorage.setItem('deviceToken', hello.auth.deviceToken);
  }
  defaults = hello.snapshot?.sessionDefaults ?? {};
  if (!session) setSession(defaults.mainSessionKey || 'agent:main:main');
  for (const id of ['sessions', 'new', 'send']) $(id).disabled = false;
  showHistory();
  showSessions();
  sendWaiting();
  if (requestedScopes().includes('operator.pairing')) devices.load();
  if (requestedScopes().includes('operator.approvals')) approvals.load();
  if (!TOUCH.matches) text.focus(); // on a phone that would open the keyboard
}

/** What the answers under way become is in the history, once the connection is back. */
function lost() {
  for (const { box, isSilent } of runs.values()) {
    if (isSilent) box.remove();
    else delete box.dataset.live;
  }
  setRuns(() => runs.clear());
  devices.clear();
  approvals.clear();
}

/** The connection was lost, and is tried again. */
function waiting(afterMs, why) {
  const until = Date.now() + afterMs;
  if ($('state').dataset.state !== 'lost') announce('The connection was lost. Reconnecting.');
  showState('lost', 'Reconnecting…');
  $('offline').hidden = false;
  const tick = () => {
    const leftS = Math.ceil((until - Date.now()) / 1000);
    const when = leftS > 0 ? `Reconnecting in ${leftS} s` : 'Reconnecting…';
    $('offline-why').textContent = why ? `${visible(why)}. ${when}` : `The gateway does not answer. ${when}`;
    if (leftS <= 0) clearInterval(countdown);
  };
  clearInterval(countdown);
  countdown = setInterval(tick, 250);
  tick();
}

function refused(error) {
  clearInterval(countdown);
  $('offline').hidden = true;
  showState('refused', 'Not connected');
  if (error instanceof NoDeviceKeyError || (error.code === 'NOT_PAIRED' && !error.details.requestId))
    explainKeys(error);
  else if (error.code === 'NOT_PAIRED') waitForApproval(String(error.details.requestId));
  else if (error.message.startsWith('unauthorized')) askForToken(error);
  else explainRefusal(error);
}

function explainKeys(error) {
  if (!error.isInsecure) {
    showProblem('This browser is too old', [
      'It cannot make the key (Ed25519) by which the gateway recognises it. Use a current Chrome, Edge, Firefox or Safari.',
    ]);
    return;
  }
  showProblem('This page needs https', [
    `${location.origin} is not encrypted: a browser gives such a page no key of its own, and others in the network could read along. Your token was not sent.`,
    "Turn on TLS, on the gateway's machine:",
    { command: 'homarus config set gateway.tls.enabled true' },
    'Then open the https:// link, or scan it:',
    { command: 'homarus qr' },
    `On the gateway's machine itself, http://localhost${location.port ? `:${location.port}` : ''}/ works as it is.`,
  ]);
}

/** Show how this browser is approved, and try again until it is. */
function waitForApproval(requestId) {
  const isNew = pairing?.requestId !== requestId;
  const wasRejected = pairing && isNew && Date.now() - pairing.since < PENDING_MS - 10_000;
  if (isNew) pairing = { requestId, since: Date.now() };
  if (wasRejected) {
    showProblem('The request was rejected', ['This browser may ask again. The new request is:', { command: `homarus devices approve ${requestId}` }]);
    return;
  }
  if (isNew) {
    showState('refused', 'Waiting for approval');
    showProblem(
      'Waiting for approval',
      [
        "This browser is new to the gateway. Approve it on the gateway's machine, or in a page there:",
        { command: `homarus devices approve ${requestId}` },
        'This page goes on by itself once it is approved.',
      ],
      false,
    );
  }
  showState('refused', 'Waiting for approval');
  clearTimeout(retryTimer);
  retryTimer = setTimeout(() => wire.connect(), PAIRING_RETRY_MS);
}

function explainRefusal(error) {
  const steps = [`The gateway refused: ${visible(error.message)}`];
  if (error.message.includes('allowedOrigins')) {
    const origins = JSON.stringify([location.origin]);
    steps.push('Allow this address:', { command: `homarus config set gateway.controlUi.allowedOrigins '${origins}'` });
  }
  if (error.message.includes('protocol')) steps.push('The page and the gateway are of different versions: load the page again.');
  showProblem('Not connected', steps);
}

/** Show what stands in the way: paragraphs, and commands to copy. */
function showProblem(title, steps, canRetry = true) {
  $('problem-title').textContent = title;
  const shown = steps.map((step) => {
    if (typeof step === 'string') return element('p', step);
    const copy = element('button', 'Copy');
    copy.type = 'button';
    copy.className = 'copy';
    const line = element('div', element('code', step.command), copy);
    line.className = 'command';
    return line;
  });
  $('problem-text').replaceChildren(...shown);
  $('problem-retry').hidden = !canRetry;
  $('sign-in').hidden = true;
  $('problem').hidden = false;
}

function askForToken(error) {
  const tried = sessionStorage.getItem('token');
  sessionStorage.removeItem('token');
  if (!tried) for (const name of ['deviceToken', 'deviceScopes']) localStorage.removeItem(name);
  $('sign-in-why').textContent = tried ? explainToken(error) : 'This gateway asks who you are.';
  $('problem').hidden = true;
  $('sign-in').hidden = false;
  $('token').focus();
}

/** Say in plain words why a token was not accepted; other reasons are shown as the gateway says them. */
function explainToken(error) {
  return error.message.includes('mismatch')
    ? 'This token is not right. `homarus dashboard` on the gateway\u2019s machine prints the link with the right one.'
    : visible(error.message);
}

function connectNow() {
  clearTimeout(retryTimer);
  showState('connecting', 'Connecting…');
  wire.connect();
}

$('sign-in-form').addEventListener('submit', (event) => {
  event.preventDefault();
  sessionStorage.setItem('token', $('token').value.trim());
  $('token').value = '';
  $('sign-in').hidden = true;
  connectNow();
});
// A gateway that has TLS by now leads a new request to https.
$('problem-retry').addEventListener('click', () => location.reload());
$('retry').addEventListener('click', connectNow);

function showState(state, words) {
  $('state').dataset.state = state;
  $('state').textContent = words;
}

function notice(words) {
  $('notice').textContent = visible(words);
  $('notice').hidden = !words;
}

/** Have a screen reader read this out. */
function announce(words) {
  $('announce').textContent = words;
}

// ---- events of the gateway ----

function received(name, payload) {
  if (name === 'shutdown') notice('The gateway is stopping; this page comes back by itself.');
  if (name === 'gap') refreshSoon(); // we were too slow for something
  if (name === 'device.pair.requested') devices.add(payload);
  if (name === 'device.pair.resolved') devices.remove(payload.requestId);
  if (name === 'exec.approval.requested') approvals.add(payload);
  if (name === 'exec.approval.resolved') approvals.remove(payload.id);
  if (name === 'question.requested') approvals.addQuestion(payload);
  if (name === 'question.resolved') approvals.remove(payload.id);
  if (name === 'chat' && payload.sessionKey !== session) {
    if (payload.state !== 'delta') refreshSoon();
  } else if (name === 'chat') receivedChat(payload);
  else if (name === 'agent' && payload.sessionKey === session) receivedAgent(payload);
}

function receivedAgent({ runId, stream, data = {} }) {
  if (stream === 'lifecycle' && data.phase === 'start') answer(runId);
  if (stream === 'tool') keepPlace(() => answer(runId).tool(data));
}

function receivedChat({ runId, state, message, errorMessage }) {
  const said = textOf(message?.content);
  if (state === 'delta') {
    answer(runId).show(said);
    return;
  }
  const shown = answer(runId);
  keepPlace(() => {
    endRun(runId);
    if (state === 'final') shown.end(said);
    if (state === 'aborted') shown.end(said, 'Stopped.');
    if (state === 'error') shown.end('', errorMessage || 'The answer failed.', 'error');
  });
  announce((shown.text || errorMessage || 'The answer was stopped.').slice(0, ANNOUNCED_CHARS));
  // Another client's question, and files that only the stored message has, are in the history.
  if (shown.isOurs && !shown.hasTools && !hasFiles(message?.content)) showSessions();
  else refreshSoon();
}

/** The answer being made by a run; a new one if this page did not know of it. */
function answer(runId, isOurs = questions.has(runId)) {
  let found = runs.get(runId);
  if (!found) {
    found = new Answer({ isOurs, keepPlace });
    keepPlace(() => now.append(found.box));
    setRuns(() => runs.set(runId, found));
  }
  return found;
}

/** A run is over. One that never wrote anything had its question answered by this one. */
function endRun(runId) {
  outbox.remove(runId);
  setRuns(() => runs.delete(runId));
  for (const [other, { isSilent }] of [...runs]) if (isSilent) forgetRun(other);
}

function forgetRun(runId) {
  outbox.remove(runId);
  setRuns(() => {
    runs.get(runId)?.end('');
    runs.delete(runId);
  });
}

function setRuns(change) {
  change();
  $('stop').hidden = runs.size === 0;
}

function refreshSoon() {
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(() => {
    showSessions();
    if (!runs.size) showHistory();
  }, REFRESH_MS);
}

// ---- the conversation ----

/** Change the log. A reader at its end stays there; anywhere else, what is in view stays in place. */
function keepPlace(change) {
  const isAtEnd = isLogAtEnd();
  const top = log.getBoundingClientRect().top;
  const inView = isAtEnd ? [] : [...past.children].filter((one) => one.getBoundingClientRect().bottom > top);
  const places = inView.slice(0, 3).map((one) => [one, one.getBoundingClientRect().top]);
  change();
  $('empty').hidden = Boolean(past.childElementCount || now.childElementCount) || !wire.isOpen;
  const kept = places.find(([one]) => one.isConnected);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  else if (kept) log.scrollTop += kept[0].getBoundingClientRect().top - kept[1];
}

function isLogAtEnd() {
  return log.scrollHeight - log.scrollTop - log.clientHeight < NEAR_PX;
}

// A phone's keyboard, a longer draft or a request of a device leave the log less room: a reader at
// its end stays there.
let wasAtEnd = true;
log.addEventListener('scroll', () => (wasAtEnd = isLogAtEnd()), { passive: true });
new ResizeObserver(() => {
  if (wasAtEnd) log.scrollTop = log.scrollHeight;
}).observe(log);

const loadMessage = (messageId, more = {}) =>
  wire.call('chat.message.get', { sessionKey: session, messageId, ...more }).catch(() => ({}));

const idOf = (message) => message?.__openclaw?.id ?? '';

async function loadPage(before) {
  const asked = session;
  const params = { sessionKey: asked, limit: PAGE_MESSAGES, maxChars: MAX_CHARS };
  if (before) params.before = before;
  const page = await wire.call('chat.history', params);
  if (asked !== session) return null;
  setSession(page.sessionKey ?? asked); // a link may have its short form, events have the full one
  return { found: page.messages ?? [], hasMore: page.hasMore ?? false };
}

/** Load the newest messages, and put them behind the older ones that are shown already. */
async function showHistory() {
  try {
    const loaded = await loadPage();
    if (!loaded) return;
    const newest = loaded.found;
    const at = newest.length ? messages.findIndex((one) => idOf(one) === idOf(newest[0])) : -1;
    if (at < 0) isAtStart = !loaded.hasMore;
    messages = at < 0 ? newest : [...messages.slice(0, at), ...newest];
    keepPlace(() => {
      drawPast();
      drawNow(newest);
      showOlderState();
    });
  } catch (error) {
    explain(error);
  }
}

async function showOlder() {
  if (isLoadingOlder || isAtStart || !messages.length || !wire.isOpen) return;
  isLoadingOlder = true;
  try {
    const older = await loadPage(idOf(messages[0]));
    if (older) {
      isAtStart = !older.hasMore;
      messages = [...older.found, ...messages];
      keepPlace(drawPast);
    }
  } catch (error) {
    explain(error);
  }
  isLoadingOlder = false;
  showOlderState();
}

/** Have older messages loaded when the reader comes near to the oldest one. */
function showOlderState() {
  const button = $('load-older');
  button.hidden = isAtStart || !messages.length;
  if (!button.hidden) whenNear(button, showOlder);
}

/** Show the loaded messages; articles that are there already stay as they are. */
function drawPast() {
  const shown = new Map();
  let place = past.firstElementChild;
  for (const group of groupsOf(messages)) {
    const article = articles.get(group.key) ?? articleOf(group, { load: loadMessage, keepPlace });
    if (!article) continue;
    shown.set(group.key, article);
    if (article === place) place = place.nextElementSibling;
    else past.insertBefore(article, place);
  }
  while (place) {
    const next = place.nextElementSibling;
    place.remove();
    place = next;
  }
  articles = shown;
}

/** Keep of what happens now only what the history does not have. */
function drawNow(newest) {
  const asked = newest.filter((one) => one.role === 'user').slice(-10);
  const keys = new Set(asked.map((one) => one.idempotencyKey));
  const texts = new Set(asked.map((one) => textOf(one.content).trim()));
  // One whose answer to `chat.send` was lost is stored under its key, and sent once more.
  const isStored = ({ runId, state, text }) =>
    keys.has(`${runId}:user`) || (state === 'sent' && texts.has(text));
  for (const [runId, { entry }] of questions) {
    if (isStored(entry) || (!outbox.find(runId) && entry.state !== 'refused')) questions.delete(runId);
  }
  const boxes = [...questions.values()].map(({ box }) => box);
  const live = new Set([...boxes, ...[...runs.values()].map(({ box }) => box)]);
  for (const box of [...now.children]) if (!live.has(box)) box.remove();
  for (const entry of outbox.of(session))
    if (!questions.has(entry.runId) && !isStored(entry)) showQuestion(entry);
}

// ---- conversations ----

function setSession(key) {
  session = key;
  sessionStorage.setItem('session', key);
}

async function showSessions() {
  try {
    const asked = { limit: SESSIONS, includeDerivedTitles: true, includeGlobal: true };
    const { sessions = [] } = await wire.call('sessions.list', asked);
    const names = new Map([[session, session]]);
    if (defaults.mainSessionKey) names.set(defaults.mainSessionKey, 'Main');
    for (const { key, label, displayName, derivedTitle } of sessions)
      names.set(key, label || displayName || derivedTitle || names.get(key) || key);
    const options = Array.from(names, ([key, name]) => {
      const words = visible(name).replace(/\s+/g, ' ');
      const option = element('option', words.length > 60 ? `${words.slice(0, 60)}…` : words);
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
  setSession(key);
  setRuns(() => runs.clear());
  questions.clear();
  notice('');
  [messages, articles, isAtStart] = [[], new Map(), false];
  past.replaceChildren();
  now.replaceChildren();
  $('load-older').hidden = true;
  restoreDraft();
  showHistory();
  showSessions();
  if (!TOUCH.matches) text.focus();
}

$('sessions').addEventListener('change', () => openSession($('sessions').value));
$('new').addEventListener('click', () =>
  openSession(`agent:${defaults.defaultAgentId || 'main'}:web-${randomId().slice(0, 12)}`),
);
$('load-older').addEventListener('click', showOlder);

// ---- sending ----

/** Put the message into the outbox; it is sent now, or when the connection is back. */
function send() {
  const message = text.value.trim();
  if ((!message && !attachments.count) || !session) return;
  const entry = outbox.add({ runId: randomId(), session, text: message, images: attachments.takeAll() });
  text.value = '';
  saveDraft();
  grow();
  notice('');
  showQuestion(entry);
  log.scrollTop = log.scrollHeight;
  sendWaiting();
}

function showQuestion(entry) {
  const question = { ...questionOf(entry), entry };
  questions.set(entry.runId, question);
  keepPlace(() => now.append(question.box));
  showEntryState(entry);
}

function showEntryState(entry) {
  const question = questions.get(entry.runId);
  if (!question) return;
  question.row.querySelector('.discard')?.remove();
  if (entry.state !== 'waiting') {
    question.set('');
    return;
  }
  question.set(wire.isOpen ? 'Sending…' : 'Waits for the connection');
  if (!wire.isOpen) addReturn(question, entry);
}

/** A button that takes a message back into the field. */
function addReturn({ row, box }, entry) {
  const button = element('button', 'Edit');
  button.type = 'button';
  button.className = 'discard';
  button.addEventListener('click', () => {
    outbox.remove(entry.runId);
    questions.delete(entry.runId);
    box.remove();
    text.value = [entry.text, text.value].filter(Boolean).join('\n');
    attachments.put(entry.images);
    saveDraft();
    grow();
    text.focus();
  });
  row.append(button);
}

async function sendWaiting() {
  for (let entry = outbox.next(); entry && wire.isOpen; entry = outbox.next()) {
    outbox.update(entry, 'sending');
    if (!(await sendEntry(entry))) break;
  }
}

/** Send a message; returns false when it has to be sent again, under the same key. */
async function sendEntry(entry) {
  const { runId, session: sessionKey, text: message, images } = entry;
  if (sessionKey === session) {
    showEntryState(entry);
    keepPlace(() => answer(runId, true));
  }
  try {
    const params = { sessionKey, message, idempotencyKey: runId };
    if (images.length)
      params.attachments = images.map(({ name, url }) => ({ type: 'image', fileName: name, content: url }));
    const { status, aborted } = await wire.call('chat.send', params);
    outbox.update(entry, 'sent');
    if (aborted !== undefined) forgetRun(runId); // a word that stops
    if (status === 'ok') {
      forgetRun(runId); // it was answered while the connection was lost
      refreshSoon();
    }
    showEntryState(entry);
  } catch (error) {
    forgetAnswer(runId);
    if (!(error instanceof Refused) || error.retryAfterMs) {
      outbox.update(entry, 'waiting');
      showEntryState(entry);
      if (wire.isOpen) setTimeout(sendWaiting, error.retryAfterMs || RESEND_MS);
      return false;
    }
    failEntry(entry, error);
  }
  return true;
}

function forgetAnswer(runId) {
  setRuns(() => {
    runs.get(runId)?.end('');
    runs.delete(runId);
  });
}

/** The gateway refused a message, or could not answer it: it stays in view, with the reason. */
function failEntry(entry, error) {
  const wasAccepted = error.payload.status === 'error'; // before the connection was lost
  outbox.remove(entry.runId);
  outbox.update(entry, 'refused');
  const question = questions.get(entry.runId);
  if (!question) {
    if (entry.session === session) explain(error); // the history has the message
    return;
  }
  question.set(wasAccepted ? 'Not answered' : 'Not sent', 'error');
  question.box.insertBefore(note(error.message, 'error'), question.row);
  addReturn(question, entry);
}

async function stop() {
  try {
    const { runIds = [] } = await wire.call('chat.abort', { sessionKey: session });
    for (const runId of [...runs.keys()]) if (!runIds.includes(runId)) forgetRun(runId);
  } catch (error) {
    explain(error);
  }
}

function explain(error) {
  if (wire.isOpen) notice(error.message);
}

// ---- the field ----

function grow() {
  text.style.height = 'auto';
  text.style.height = `${Math.min(text.scrollHeight, innerHeight * 0.4)}px`;
}

const draftName = () => `draft:${session}`;

function saveDraft() {
  try {
    if (text.value) sessionStorage.setItem(draftName(), text.value);
    else sessionStorage.removeItem(draftName());
  } catch {
    // The storage is full: the text stays in the field.
  }
}

function restoreDraft() {
  text.value = sessionStorage.getItem(draftName()) ?? '';
  grow();
}

function describeKeys() {
  text.enterKeyHint = TOUCH.matches ? 'enter' : 'send';
  $('hint').textContent = TOUCH.matches ? '' : 'Enter sends · Shift+Enter starts a line';
}

$('composer').addEventListener('submit', (event) => {
  event.preventDefault();
  send();
});
$('stop').addEventListener('click', stop);
text.addEventListener('input', () => {
  grow();
  saveDraft();
});
text.addEventListener('keydown', (event) => {
  const isComposing = event.isComposing || event.keyCode === 229; // Enter ends the composition
  if (event.key !== 'Enter' || event.shiftKey || isComposing || TOUCH.matches) return;
  event.preventDefault();
  send();
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape' && runs.size) stop();
});
TOUCH.addEventListener('change', describeKeys);

$('attach').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
  await attachments.add($('file').files);
  $('file').value = '';
});
text.addEventListener('paste', (event) => {
  const images = imagesOf(event.clipboardData);
  if (!images.length) return;
  event.preventDefault();
  attachments.add(images);
});
for (const kind of ['dragover', 'drop', 'dragleave'])
  addEventListener(kind, (event) => {
    if (kind !== 'dragleave') event.preventDefault(); // the browser would open the file
    $('composer').toggleAttribute('data-over', kind === 'dragover');
    if (kind !== 'drop' || !event.dataTransfer?.files.length) return;
    notice('');
    attachments.add(event.dataTransfer.files);
  });

// ---- copying ----

addEventListener('click', async (event) => {
  const button = event.target.closest?.('button.copy');
  if (!button) return;
  const block = button.closest('figure, .command');
  const code = block?.querySelector('code').textContent;
  const done = await copy(code ?? (await sourceOf(button.closest('article'))));
  button.textContent = done ? 'Copied' : 'Not copied';
  announce(button.textContent);
  setTimeout(() => (button.textContent = 'Copy'), 1_500);
});

/** Copy a text; a page over plain http has only the old way. */
async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    return true;
  } catch {
    const field = element('textarea', words);
    field.className = 'unseen';
    document.body.append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    return done;
  }
}

describeKeys();
restoreDraft();
for (const entry of outbox.of(session)) showQuestion(entry);
wire.connect();
