// Tool calls that wait for a person's approval, and questions of agents, shown to a page that may approve them.

import { element, visible } from './markdown.js';

const SETTLE_MS = 600; // a click that was meant for what was there before is not an answer
const MAX_CHARS = 20_000;

export class ApprovalCards {
  #box;
  #call;
  #announce;
  #nameOf;
  #cards = new Map(); // approval id → card

  constructor({ box, call, announce, nameOf }) {
    this.#box = box;
    this.#call = call;
    this.#announce = announce;
    this.#nameOf = nameOf;
    setInterval(() => this.#showTimes(), 1_000);
  }

  /** Show what waits; a page that may not see it shows nothing. */
  async load() {
    this.clear();
    try {
      for (const approval of await this.#call('exec.approval.list', {})) this.add(approval);
      const { questions } = await this.#call('question.list', {});
      for (const question of questions) this.addQuestion(question);
    } catch {
      this.clear();
    }
  }

  clear() {
    for (const id of [...this.#cards.keys()]) this.remove(id);
  }

  remove(id) {
    this.#cards.get(id)?.box.remove();
    this.#cards.delete(id);
  }

  add({ id, request = {}, expiresAtMs = 0 }) {
    if (!id || this.#cards.has(id) || expiresAtMs <= Date.now()) return;
    const left = element('span');
    const title = element('h2', visible(String(request.title || 'Run this command?')), left);
    const detail = visible(String(request.detail || request.command || ''));
    const isComplete = detail.length <= MAX_CHARS;
    const facts = element('dl');
    const rows = {
      'Asked by': [request.agentId, this.#nameOf(String(request.sessionKey ?? ''))],
      'Why asked': [request.reason],
      'For good': request.always ? [request.always] : [],
      Id: [String(id).slice(0, 8)],
    };
    for (const [name, values] of Object.entries(rows)) {
      const value = values.filter(Boolean).map((each) => visible(String(each)).slice(0, 300)).join(' · ');
      if (value) facts.append(element('dt', name), element('dd', value));
    }
    const problem = element('p');
    problem.hidden = true;
    const buttons = [this.#button('Deny', 'danger', 'deny', id, problem)];
    if (isComplete) {
      if (request.always) buttons.unshift(this.#button('Always allow', '', 'allow-always', id, problem));
      buttons.unshift(this.#button('Allow once', 'main', 'allow-once', id, problem));
    } else {
      problem.textContent = 'This is too long to be shown here: homarus approvals list shows all of it.';
      problem.hidden = false;
    }
    const text = element('pre', detail.slice(0, MAX_CHARS));
    text.tabIndex = 0;
    const box = element('section', title, text, facts, problem, element('div', ...buttons));
    box.className = 'ask approval';
    box.dataset.approval = id;
    box.setAttribute('aria-label', 'A tool call needs your approval');
    this.#cards.set(id, { box, left, expiresAtMs });
    this.#box.append(box);
    this.#showTimes();
    this.#announce('A tool call needs your approval.');
  }

  /** Show a question of the agent: a button for each choice, and a field where text is accepted. */
  addQuestion({ id, questions: [asked = {}] = [], agentId, sessionKey, expiresAtMs = 0 }) {
    const { questionId, question, options, isOther } = asked;
    const answerWith = (text) => ({ answers: { answers: { [questionId]: [text] } } });
    if (!id || this.#cards.has(id) || expiresAtMs <= Date.now()) return;
    const left = element('span');
    const problem = element('p');
    problem.hidden = true;
    const send = async (button, params) => {
      if (!params) return; // nothing was written
      button.disabled = true;
      try {
        await this.#call('question.resolve', { id, ...params });
        this.remove(id);
      } catch (error) {
        problem.textContent = visible(error.message);
        problem.hidden = false;
        button.disabled = false;
      }
    };
    const make = (words, kind, getParams) => {
      const button = element('button', words);
      button.type = 'button';
      button.className = kind;
      button.disabled = true;
      setTimeout(() => (button.disabled = false), SETTLE_MS);
      button.addEventListener('click', () => send(button, getParams()));
      return button;
    };
    const offered = Array.isArray(options) ? options.map(({ label }) => String(label)) : [];
    const buttons = offered.map((each) => make(visible(each), '', () => answerWith(each)));
    if (isOther) {
      const field = element('input');
      field.maxLength = 2000;
      field.setAttribute('aria-label', 'Your answer');
      const answer = make('Answer', 'main', () => field.value.trim() && answerWith(field.value.trim()));
      field.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' && !answer.disabled) answer.click();
      });
      buttons.push(field, answer);
    }
    buttons.push(make('Dismiss', 'danger', () => ({ cancel: true })));
    const asker = [agentId, this.#nameOf(String(sessionKey ?? ''))].filter(Boolean).join(' · ');
    const facts = element('dl', element('dt', 'Asked by'), element('dd', visible(asker)));
    const title = element('h2', 'A question of the agent', left);
    const text = element('pre', visible(String(question ?? '')));
    const box = element('section', title, text, facts, problem, element('div', ...buttons));
    box.className = 'ask approval';
    box.dataset.question = id;
    box.setAttribute('aria-label', 'The agent asks you a question');
    this.#cards.set(id, { box, left, expiresAtMs });
    this.#box.append(box);
    this.#showTimes();
    this.#announce('The agent asks you a question.');
  }

  #showTimes() {
    for (const [id, { left, expiresAtMs }] of this.#cards) {
      const seconds = Math.ceil((expiresAtMs - Date.now()) / 1000);
      if (seconds <= 0) this.remove(id);
      else left.textContent = `expires in ${timeLeft(seconds)}`;
    }
  }

  #button(words, kind, decision, id, problem) {
    const button = element('button', words);
    button.type = 'button';
    button.className = kind;
    button.disabled = decision !== 'deny';
    setTimeout(() => (button.disabled = false), SETTLE_MS);
    button.addEventListener('click', async () => {
      button.disabled = true;
      try {
        await this.#call('exec.approval.resolve', { id, decision });
        this.remove(id);
      } catch (error) {
        problem.textContent = visible(error.message);
        problem.hidden = false;
        button.disabled = false;
      }
    });
    return button;
  }
}

function timeLeft(seconds) {
  const two = (number) => String(number).padStart(2, '0');
  if (seconds >= 3600) return `${Math.floor(seconds / 3600)}:${two(Math.floor((seconds % 3600) / 60))} h`;
  return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
}
