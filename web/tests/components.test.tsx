import { render } from 'preact';
import { describe, expect, it } from 'vitest';
import { Diff } from '../src/components/Diff';
import { ErrorState } from '../src/components/ErrorState';
import { Figure } from '../src/components/Figure';
import { NoAnswerError } from '../src/gateway/errors';
import { escapeInvisible } from '../src/markdown/text';
import { diffLines } from '../src/state/diff';

function textOf(node: preact.ComponentChild): string {
  const box = document.createElement('div');
  render(node, box);
  return box.textContent;
}

describe('Diff', () => {
  it('shows characters that are not seen', () => {
    const lines = diffLines('', 'if admin:\u202e pass\u{e0041}');
    expect(textOf(<Diff lines={lines} label="x" />)).toContain('if admin:⟨U+202E⟩ pass⟨U+E0041⟩');
  });
});

describe('ErrorState', () => {
  const lost = (wasSent: boolean): NoAnswerError => new NoAnswerError('the connection was lost', { wasSent });

  it('says of an action whether it may have been done', () => {
    expect(textOf(<ErrorState error={lost(true)} />)).toContain('lost. It may have been done');
    expect(textOf(<ErrorState error={lost(false)} />)).toContain('lost. It was not done');
  });

  it('says of what is loaded that it comes back', () => {
    expect(textOf(<ErrorState error={lost(true)} onRetry={() => undefined} />)).toContain('lost. It is loaded again');
  });
});

describe('Figure', () => {
  it('shows a number with its unit', () => {
    expect(textOf(<Figure value="3" unit="waiting" />)).toBe('3 waiting');
  });
});

describe('escapeInvisible', () => {
  it.each(['\u200b', '\u2060', '\ufeff', '\u3164', '\u2028', '\u{e0020}'])('writes %j out', (char) => {
    expect(escapeInvisible(`rm${char} -rf`)).toMatch(/^rm⟨U\+[0-9A-F]{4,5}⟩ -rf$/);
  });

  it.each(['👩‍👩‍👧', '🏴󠁧󠁢󠁥󠁮󠁧󠁿', '❤️', 'می‌خواهم', 'नमस्ते', 'naïve'])('leaves %s as it is', (word) => {
    expect(escapeInvisible(word)).toBe(word);
  });
});
