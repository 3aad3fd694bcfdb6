// The messages of a conversation as nodes: the stored ones, and the answer that is being made.

import { MarkdownView, element, markdown, plain, visible } from './markdown.js';

const MAX_TOOL_CHARS = 200_000; // of one tool's output
const MAX_BRIEF_CHARS = 160;
const NEAR = '600px';
const CUT = '\n…(cut)…';
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

const sources = new WeakMap(); // article → a function that returns its text
const onNear = new WeakMap(); // element → what to do when it is nearly in view
const watcher = new IntersectionObserver(
  (seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      watcher.unobserve(target);
      onNear.get(target)?.();
    }
  },
  { root: document.getElementById('log'), rootMargin: NEAR },
);

/** Call a function once, when an element comes near to what is in view. */
export function whenNear(target, run) {
  onNear.set(target, run);
  watcher.observe(target);
}

/** The text of an article, to be copied; it is loaded first when only its start was. */
export async function sourceOf(article) {
  return visible((await sources.get(article)?.()) ?? '');
}

export function textOf(content) {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  const texts = content.map((part) => (part?.type === 'text' ? String(part.text ?? '') : ''));
  return texts.filter(Boolean).join('\n');
}

export function hasFiles(content) {
  return Array.isArray(content) && content.some((part) => part?.type === 'media');
}

/** The messages by what is shown together: a question, or an answer with its tools. */
export function groupsOf(messages) {
  const groups = [];
  let continues = false; // after a tool, the same answer continues
  for (const message of messages) {
    const id = message.__openclaw?.id ?? '';
    const last = groups.at(-1);
    const isResult = message.role === 'toolResult';
    if (last?.role === 'assistant' && (isResult || (continues && message.role === 'assistant'))) {
      last.messages.push(message);
      last.key += `,${id}`;
    } else groups.push({ key: `${message.role}:${id}`, role: message.role, messages: [message] });
    continues = isResult;
  }
  return groups;
}

/**
 * An article for a group; null when there is nothing to show. `load(id, more)` returns what
 * `chat.message.get` answers, `keepPlace(change)` changes the log without moving what is read.
 */
export function articleOf(group, { load, keepPlace }) {
  if (group.role === 'system') return compactionOf(group.messages[0]);
  if (group.role !== 'user' && group.role !== 'assistant') return null;
  const box = newArticle(group.role);
  const texts = [];
  const tools = new Map();
  for (const message of group.messages) {
    const context = { id: message.__openclaw?.id, load, keepPlace };
    if (message.role === 'toolResult') tools.get(message.toolCallId)?.finish(message, context);
    else addMessage(box, message, { ...context, texts, tools });
  }
  for (const tool of tools.values()) tool.settle();
  if (!box.childElementCount) return null;
  const getText = async () => (await Promise.all(texts.map((get) => get()))).join('\n\n');
  addMeta(box, getText, group.messages[0].timestamp);
  return box;
}

function compactionOf({ __openclaw: marker }) {
  if (marker?.kind !== 'compaction') return null;
  const line = element('p', 'Older messages were summarised for the model');
  line.className = 'divider';
  return line;
}

function addMessage(box, message, context) {
  const { texts, tools, load, id, keepPlace } = context;
  const parts = Array.isArray(message.content) ? message.content : [];
  const text = textOf(message.content);
  const isCut = Boolean(message.__openclaw?.truncated);
  if (text) {
    const words = newWords();
    const show = (shown) => words.replaceChildren(message.role === 'user' ? plain(shown) : markdown(shown));
    let whole = isCut ? null : Promise.resolve(text);
    const getWhole = () => (whole ??= loadText(load, id, text));
    show(isCut ? text.replace(CUT, '…') : text);
    if (isCut) whenNear(words, async () => keepPlace(show.bind(null, await getWhole())));
    texts.push(getWhole);
    box.append(words);
  }
  const pictures = parts.filter((part) => part?.type === 'image' || part?.type === 'media');
  if (pictures.length) box.append(picturesOf(pictures, context));
  for (const part of parts) {
    if (part?.type !== 'toolCall') continue;
    const tool = new ToolLine(part.name, part.arguments);
    tools.set(part.id, tool);
    box.append(tool.box);
  }
  if (message.openclawAbort || message.stopReason === 'aborted') box.append(note('Stopped.'));
  if (message.errorMessage) box.append(note(String(message.errorMessage), 'error'));
}

async function loadText(load, id, start) {
  const { message } = await load(id);
  return message ? textOf(message.content) : start;
}

function newArticle(role) {
  const box = element('article');
  box.dataset.role = role;
  box.setAttribute('aria-label', role === 'user' ? 'You' : 'Homarus');
  return box;
}

function newWords() {
  const words = element('div');
  words.className = 'words';
  return words;
}

function addMeta(box, getText, at) {
  sources.set(box, getText);
  const row = element('div');
  row.className = 'meta';
  if (at) {
    const time = element('time', briefTime(at));
    time.dateTime = new Date(at).toISOString();
    time.title = new Date(at).toLocaleString();
    row.append(time);
  }
  const copy = element('button', 'Copy');
  copy.type = 'button';
  copy.className = 'copy';
  row.append(copy);
  box.append(row);
  return row;
}

function briefTime(at) {
  const date = new Date(at);
  const isToday = date.toDateString() === new Date().toDateString();
  const clock = { hour: '2-digit', minute: '2-digit' };
  return date.toLocaleString([], isToday ? clock : { ...clock, day: 'numeric', month: 'short' });
}

export function note(words, kind = 'aside') {
  const made = element('p', visible(words));
  made.className = kind;
  return made;
}

// ---- pictures ----

function picturesOf(parts, context) {
  const row = element('div');
  row.className = 'pictures';
  for (const part of parts) row.append(pictureOf(part, context));
  return row;
}

/** A stored picture: loaded when it comes into view, from this gateway and from nowhere else. */
function pictureOf(part, { id, load, keepPlace }) {
  const name = visible(String(part.path ?? 'Image'));
  const holder = element('span', part.path ? `File: ${name}` : 'Image…');
  holder.className = 'aside';
  if (part.path && !/\.(?:png|jpe?g|gif|webp)$/i.test(part.path)) return holder;
  if (/^[a-z]+:\/\//i.test(part.path ?? '')) return markdown(name); // a link
  whenNear(holder, async () => {
    const { image } = await load(id, part.path ? { media: part.path } : { index: part.index });
    const shown = image && (await decoded(image, name.split('/').at(-1)));
    if (shown) keepPlace(() => holder.replaceWith(shown));
    else if (!part.path) holder.textContent = 'An image that cannot be shown';
  });
  return holder;
}

/** An image element whose size is known; null when its data is no picture. */
export async function decoded({ mimeType, data }, name) {
  if (!PICTURES.has(mimeType)) return null;
  const made = element('img');
  made.alt = name;
  made.src = `data:${mimeType};base64,${data}`;
  try {
    await made.decode();
  } catch {
    return null;
  }
  return made;
}

// ---- tools ----

/** One tool call: what it was asked, and, folded away, what it returned. */
class ToolLine {
  #output = element('pre');

  constructor(name, args) {
    const words = visible(briefly(args));
    const summary = element('summary', element('b', visible(String(name ?? 'tool'))), ' ');
    if (words) summary.append(element('code', words));
    this.#output.tabIndex = 0;
    this.box = element('details', summary, this.#output);
    this.box.className = 'tool';
    this.box.dataset.state = 'running';
  }

  show(words) {
    if (!words) return;
    const rest = words.length - MAX_TOOL_CHARS;
    const shown = rest > 0 ? `${words.slice(0, MAX_TOOL_CHARS)}\n… ${rest} more` : words;
    this.#output.textContent = visible(shown);
  }

  end(words, isError) {
    this.show(words);
    this.box.dataset.state = isError ? 'failed' : 'done';
  }

  /** End with a stored result; a long one and its pictures are loaded when it is opened. */
  finish(message, context) {
    const content = Array.isArray(message.content) ? message.content : [];
    const pictures = content.filter((part) => part?.type === 'image');
    const text = textOf(message.content);
    this.end(text.replace(CUT, '…'), message.isError);
    const isCut = Boolean(message.__openclaw?.truncated);
    if (!isCut && !pictures.length) return;
    const open = async () => {
      if (pictures.length) this.box.append(picturesOf(pictures, context));
      if (isCut) this.show(await loadText(context.load, context.id, text));
    };
    this.box.addEventListener('toggle', open, { once: true });
  }

  settle() {
    if (this.box.dataset.state === 'running') this.box.dataset.state = 'stopped';
  }
}

function briefly(args) {
  if (!args || typeof args !== 'object') return '';
  const values = Object.values(args).map((one) => (typeof one === 'string' ? one : JSON.stringify(one)));
  const words = values.join(' ').slice(0, 4 * MAX_BRIEF_CHARS).replace(/\s+/g, ' ');
  return words.length > MAX_BRIEF_CHARS ? `${words.slice(0, MAX_BRIEF_CHARS)}…` : words;
}

// ---- what happens now ----

/** A question of this page, until the stored one takes its place. */
export function questionOf({ text, images }) {
  const box = newArticle('user');
  if (images.length) {
    const row = element('div');
    row.className = 'pictures';
    for (const { name, url } of images) {
      const shown = element('img');
      shown.src = url;
      shown.alt = name;
      row.append(shown);
    }
    box.append(row);
  }
  if (text) {
    const words = newWords();
    words.append(plain(text));
    box.append(words);
  }
  const row = addMeta(box, async () => text, Date.now());
  const status = element('span');
  row.prepend(status);
  const set = (words, kind = 'aside') => {
    status.textContent = words;
    status.className = kind;
    row.toggleAttribute('data-shown', Boolean(words));
  };
  return { box, row, set };
}

/** One answer: its text and its tools, in the order they came. */
export class Answer {
  box = newArticle('assistant');
  hasTools = false;
  #before = ''; // the text before the last tool
  #text = '';
  #view = null;
  #tools = new Map();
  #keepPlace;
  #frame = 0;
  #readyAt = 0;

  constructor({ isOurs, keepPlace }) {
    this.isOurs = isOurs; // asked by this page
    this.#keepPlace = keepPlace;
    this.box.dataset.live = '';
    this.box.setAttribute('aria-busy', 'true');
  }

  get isSilent() {
    return !this.#text && this.box.childElementCount === 0;
  }

  get text() {
    return this.#text;
  }

  /** `all` is the whole text so far; a gateway may count from the last tool, or from the start. */
  show(all) {
    this.#text = all;
    if (this.#frame) return;
    const waitMs = Math.max(0, this.#readyAt - performance.now());
    this.#frame = setTimeout(() => this.#keepPlace(() => this.#draw()), waitMs);
  }

  /** Show the text. A long one is shown less often, so that the page stays usable. */
  #draw() {
    clearTimeout(this.#frame);
    this.#frame = 0;
    const all = this.#text;
    const part = all.startsWith(this.#before) ? all.slice(this.#before.length) : all;
    if (!this.#view && !part.trim()) return;
    const startedAt = performance.now();
    if (!this.#view) {
      const words = newWords();
      this.#view = new MarkdownView(words);
      this.box.append(words);
    }
    this.#view.show(part);
    const endedAt = performance.now();
    this.#readyAt = endedAt + 3 * (endedAt - startedAt);
  }

  tool({ phase, toolCallId, name, args, isError, result, partialResult }) {
    this.#draw();
    if (this.#view) [this.#before, this.#view] = [this.#text, null];
    this.hasTools = true;
    let line = this.#tools.get(toolCallId);
    if (!line) {
      line = new ToolLine(name, args);
      this.#tools.set(toolCallId, line);
      this.box.append(line.box);
    }
    if (phase === 'update') line.show(textOf(partialResult?.content));
    if (phase === 'result') line.end(textOf(result?.content), isError);
  }

  end(text, mark = '', kind = 'aside') {
    delete this.box.dataset.live;
    this.box.removeAttribute('aria-busy');
    for (const line of this.#tools.values()) line.settle();
    if (text) this.#text = text;
    this.#draw();
    if (mark) this.box.append(note(mark, kind));
    if (this.box.childElementCount) addMeta(this.box, async () => this.#text, Date.now());
    else this.box.remove(); // it chose to answer nothing
  }
}
