import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { DrawBudget, FRAME_COST } from '../src/state/drawBudget';

const frames: (() => void)[] = [];

beforeEach(() => {
  vi.stubGlobal('requestAnimationFrame', (run: () => void) => frames.push(run));
});
afterEach(() => {
  frames.length = 0;
  vi.unstubAllGlobals();
});

function nextFrame(): void {
  for (const run of frames.splice(0)) run();
}

describe('DrawBudget', () => {
  it('gives out no more than a frame has, and one thing at least', () => {
    const budget = new DrawBudget();
    expect(budget.take(10 * FRAME_COST)).toBe(true);
    expect(budget.take(1)).toBe(false);
    nextFrame();
    expect(budget.take(FRAME_COST - 1)).toBe(true);
    expect(budget.take(2)).toBe(true);
    expect(budget.take(1)).toBe(false);
  });

  it('calls what asked last first, as many as a frame has room for', () => {
    const budget = new DrawBudget();
    const called: string[] = [];
    for (const name of ['a', 'b', 'c', 'd']) budget.wait(FRAME_COST / 2, () => called.push(name));
    nextFrame();
    expect(called).toEqual(['d', 'c']);
    nextFrame();
    expect(called).toEqual(['d', 'c', 'b', 'a']);
  });

  it('forgets what was taken back, and says when nothing waits', () => {
    const budget = new DrawBudget();
    const called: string[] = [];
    budget.wait(1, () => called.push('stays'));
    budget.wait(1, () => called.push('gone'))();
    budget.whenIdle(() => called.push('idle'));
    nextFrame();
    expect(called).toEqual(['stays']);
    nextFrame();
    expect(called).toEqual(['stays', 'idle']);
    expect(frames).toHaveLength(0);
  });
});
