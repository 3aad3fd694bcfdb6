/**
 * How much is drawn in a frame. What is long or far away is drawn in parts, so that no frame takes so
 * long that the page does not react.
 */

/** In characters of text: about 20 ms of a slow machine, layout and painting included. */
export const FRAME_COST = 2_500;

interface Waiting {
  cost: number;
  run: () => void;
}

export class DrawBudget {
  #left = FRAME_COST;
  #frame = 0;
  readonly #waiting: Waiting[] = [];
  readonly #idle = new Set<() => void>();

  /** Return whether there is room for something in this frame, and use it. One thing always has room. */
  take(cost: number): boolean {
    if (this.#left <= 0) return false;
    this.#left -= cost;
    this.#schedule();
    return true;
  }

  /** Call a function in a later frame that has room. What asked last is called first: it is in view. */
  wait(cost: number, run: () => void): () => void {
    const entry = { cost, run };
    this.#waiting.push(entry);
    this.#schedule();
    return () => {
      const at = this.#waiting.indexOf(entry);
      if (at >= 0) this.#waiting.splice(at, 1);
    };
  }

  /** Call a function when nothing waits to be drawn. */
  whenIdle(run: () => void): () => void {
    this.#idle.add(run);
    this.#schedule();
    return () => this.#idle.delete(run);
  }

  #schedule(): void {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.#startFrame());
  }

  #startFrame(): void {
    this.#frame = 0;
    this.#left = FRAME_COST;
    if (!this.#waiting.length) {
      const idle = [...this.#idle];
      this.#idle.clear();
      for (const run of idle) run();
      return;
    }
    let planned = 0;
    for (let next = this.#waiting.at(-1); next && planned < FRAME_COST; next = this.#waiting.at(-1)) {
      this.#waiting.pop();
      planned += next.cost;
      next.run();
    }
    this.#schedule();
  }
}

/** The budget of this page. */
export const drawBudget = new DrawBudget();
