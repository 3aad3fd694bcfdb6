/** Says which elements are near to what is in view; one observer serves all of them. */
export class Viewport {
  readonly #listeners = new Map<Element, (isNear: boolean, heightPx: number) => void>();
  readonly #changed = new Map<Element, IntersectionObserverEntry>();
  #observer: IntersectionObserver | null = null;
  #frame = 0;

  /** Start with the box that scrolls; returns the function that ends it. */
  start(root: Element | null): () => void {
    const observer = new IntersectionObserver(
      (entries) => {
        for (const entry of entries) this.#changed.set(entry.target, entry);
        if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#report());
      },
      { root, rootMargin: '1200px 0px' },
    );
    this.#observer = observer;
    for (const element of this.#listeners.keys()) observer.observe(element);
    return () => observer.disconnect();
  }

  /** Report what went out of view, and one element that came near: each takes time to be drawn. */
  #report(): void {
    this.#frame = 0;
    let hasNear = false;
    for (const [element, { isIntersecting, boundingClientRect }] of this.#changed) {
      if (isIntersecting && hasNear) continue;
      hasNear ||= isIntersecting;
      this.#changed.delete(element);
      this.#listeners.get(element)?.(isIntersecting, boundingClientRect.height);
    }
    if (this.#changed.size) this.#frame = requestAnimationFrame(() => this.#report());
  }

  observe(element: Element, listener: (isNear: boolean, heightPx: number) => void): () => void {
    this.#listeners.set(element, listener);
    this.#observer?.observe(element);
    return () => {
      this.#listeners.delete(element);
      this.#observer?.unobserve(element);
    };
  }
}
