// Devices that ask for access, shown to a page that may approve them.

import { element, visible } from './markdown.js';

const PENDING_MS = 5 * 60_000; // a request expires
const SCOPES = {
  'operator.admin': 'do everything',
  'operator.read': 'read conversations',
  'operator.write': 'send messages',
  'operator.approvals': 'approve commands',
  'operator.pairing': 'approve devices',
};

export class DeviceRequests {
  #box;
  #call;
  #announce;
  #cards = new Map(); // request id → card

  constructor({ box, call, announce }) {
    this.#box = box;
    this.#call = call;
    this.#announce = announce;
  }

  /** Show the requests that wait; a page that may not see them shows none. */
  async load() {
    this.clear();
    try {
      const { pending = [] } = await this.#call('device.pair.list', {});
      for (const request of pending.reverse()) this.add(request);
    } catch {
      this.clear();
    }
  }

  clear() {
    for (const id of [...this.#cards.keys()]) this.remove(id);
  }

  remove(id) {
    const card = this.#cards.get(id);
    this.#cards.delete(id);
    clearTimeout(card?.timer);
    card?.box.remove();
  }

  add(request) {
    const id = String(request.requestId ?? '');
    const leftMs = PENDING_MS - Math.max(0, Date.now() - (request.ts ?? Date.now()));
    if (!id || this.#cards.has(id) || leftMs <= 0) return;
    for (const [other, { deviceId }] of this.#cards) if (deviceId === request.deviceId) this.remove(other);
    const title = element('h2', 'A device asks for access');
    const facts = element('dl');
    const may = (request.scopes ?? []).map((scope) => SCOPES[scope] ?? scope).join(', ');
    const rows = {
      Device: [request.displayName, request.platform, request.clientId].filter(Boolean).join(' · '),
      From: request.remoteIp || 'this machine',
      May: request.role === 'node' ? 'run commands as a node' : may || 'nothing',
      Request: id,
    };
    for (const [name, value] of Object.entries(rows))
      facts.append(element('dt', name), element('dd', visible(String(value)).slice(0, 300)));
    const problem = element('p');
    problem.hidden = true;
    const approve = this.#button('Approve', 'main', 'device.pair.approve', id, problem);
    const reject = this.#button('Reject', 'danger', 'device.pair.reject', id, problem);
    const box = element('section', title, facts, problem, element('div', approve, reject));
    box.className = 'ask';
    box.dataset.request = id;
    box.setAttribute('aria-label', 'A device asks for access');
    const timer = setTimeout(() => this.remove(id), leftMs);
    this.#cards.set(id, { box, timer, deviceId: request.deviceId });
    this.#box.append(box);
    this.#announce('A device asks for access.');
  }

  #button(words, kind, method, id, problem) {
    const button = element('button', words);
    button.type = 'button';
    button.className = kind;
    button.addEventListener('click', async () => {
      button.disabled = true;
      try {
        await this.#call(method, { requestId: id });
        this.remove(id);
      } catch (error) {
        problem.textContent = `${error.message}. On the gateway's machine: homarus devices list`;
        problem.hidden = false;
        button.disabled = false;
      }
    });
    return button;
  }
}
