import { h, render } from 'preact';
import { Gradual } from '../components/Gradual';
import { MarkdownStream } from './stream';

/**
 * Markdown in an element of its own. An answer that was streamed and then comes as a part of the
 * history is the same text in another place: its element moves there, and nothing is drawn again.
 */
export class MarkdownView {
  readonly element = document.createElement('div');
  text = '';
  readonly #stream = new MarkdownStream();

  constructor() {
    this.element.className = 'markdown';
  }

  show(text: string): void {
    this.text = text;
    const { nodes, costs } = this.#stream.parse(text);
    render(h(Gradual, { nodes, costs }), this.element);
  }

  clear(): void {
    render(null, this.element);
  }
}

const KEEP_MS = 200;

const released = new Map<string, MarkdownView>();

/** Return a view for a text: one that was released just now, if it has this text. */
export function takeView(text: string): MarkdownView {
  const found = released.get(text);
  released.delete(text);
  return found ?? new MarkdownView();
}

/** Give back a view; unless it is taken soon, it is cleared. */
export function releaseView(view: MarkdownView): void {
  view.element.remove();
  released.set(view.text, view);
  setTimeout(() => {
    if (released.get(view.text) === view) released.delete(view.text);
    if (!view.element.parentNode) view.clear();
  }, KEEP_MS);
}
