/** The runs of a conversation that are under way, or that the history does not have yet. */

import type { HistoryMessage } from '../../protocol/results';
import { isSettled, LiveRun } from './liveRun';
import type { ToolBlock } from './turns';

export class LiveRuns {
  readonly #runs = new Map<string, LiveRun>();
  /** Runs from before the connection was lost: they are shown until it is known what became of them. */
  readonly #stale = new Set<string>();

  get list(): LiveRun[] {
    return [...this.#runs.values()];
  }

  /** Return a run. A stale one starts again in its place: the gateway sends its text from the start. */
  get(runId: string): LiveRun {
    const known = this.#runs.get(runId);
    if (known && !this.#stale.delete(runId)) return known;
    const run = new LiveRun(runId);
    this.#runs.set(runId, run);
    return run;
  }

  /** Return a tool's newest state: the history has none of the output of one that runs. */
  findTool(id: string): ToolBlock | undefined {
    for (const run of this.#runs.values()) {
      const found = run.tools.get(id);
      if (found) return found;
    }
    return undefined;
  }

  /** The connection is lost: the runs may end without an event. */
  markStale(): void {
    for (const runId of this.#runs.keys()) this.#stale.add(runId);
  }

  /** Remove what the history has: runs that ended, blocks of others, and runs that are stale. */
  settle(newest: readonly HistoryMessage[]): void {
    for (const [runId, run] of this.#runs) {
      if (this.#stale.has(runId) || isSettled(run, newest)) this.#runs.delete(runId);
      else run.prune(newest);
    }
    this.#stale.clear();
  }
}
