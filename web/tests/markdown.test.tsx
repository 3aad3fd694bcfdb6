import { render } from 'preact';
import { act } from 'preact/test-utils';
import { beforeEach, describe, expect, it } from 'vitest';
import { Markdown } from '../src/components/Markdown';
import { MarkdownStream } from '../src/markdown/stream';
import { escapeInvisible } from '../src/markdown/text';
import { drawBudget } from '../src/state/drawBudget';

function show(text: string): HTMLElement {
  const box = document.createElement('div');
  render(<Markdown text={text} />, box);
  return box;
}

/** Wait until everything is drawn. */
function settle(): Promise<void> {
  return new Promise((done) => drawBudget.whenIdle(done));
}

beforeEach(settle); // with the budget of a new frame

describe('Markdown', () => {
  it('shows blocks and emphasis', () => {
    const box = show('# Title\n\nSome **bold** and `code`.\n\n- one\n- two\n\n```js\nlet a;\n```');
    expect(box.querySelector('h3')?.textContent).toBe('Title');
    expect(box.querySelector('strong')?.textContent).toBe('bold');
    expect(box.querySelectorAll('li')).toHaveLength(2);
    expect(box.querySelector('pre')?.textContent).toBe('let a;');
  });

  it('shows a table with its alignment', () => {
    const box = show('| a | b |\n| - | -: |\n| 1 | 2 |');
    expect(box.querySelectorAll('td')).toHaveLength(2);
    expect(box.querySelectorAll('.md-end')).toHaveLength(2);
  });

  it.each([
    '<img src=x onerror=alert(1)>',
    '<script>alert(1)</script>',
    '[x](javascript:alert(1))',
    '[x](data:text/html,<script>1</script>)',
    '![x](data:image/svg+xml;base64,PHN2Zz4=)',
    '<svg onload=alert(1)>',
  ])('makes no script of %s', (text) => {
    const box = show(text);
    expect(box.querySelectorAll('img,script,svg,iframe,a[href^=javascript],a[href^=data]')).toHaveLength(0);
  });

  it('loads no image from outside', () => {
    const box = show('![cat](https://evil.example/cat.png)');
    expect(box.querySelector('img')).toBeNull();
    expect(box.querySelector('a')?.href).toBe('https://evil.example/cat.png');
    expect(box.textContent).toContain('evil.example');
  });

  it('lets the text of each block say in which direction it is read', () => {
    const box = show('# \u0645\u0631\n\n\u0645\u0631\n\n- \u0645\u0631\n\n> a\n\n| a |\n| - |\n| 1 |\n\n```\na\n```');
    const directions = [...box.querySelectorAll('[dir]')].map((each) => `${each.tagName} ${each.getAttribute('dir')}`);
    expect(directions).toEqual(['H3 auto', 'P auto', 'UL auto', 'BLOCKQUOTE auto', 'TABLE auto', 'FIGURE ltr']);
  });

  it('shows where a link leads', () => {
    expect(show('[bank](https://evil.example/)').textContent).toBe('bank (evil.example)');
    const link = show('[bank](https://evil.example/)').querySelector('a');
    expect(link?.rel).toContain('noopener');
  });

  it('shows characters that would hide text', () => {
    expect(escapeInvisible('a\u202eb\u0007')).toBe('a⟨U+202E⟩b⟨U+0007⟩');
  });

  it('takes little time for hostile nesting', () => {
    const startedAt = performance.now();
    show('['.repeat(20_000) + '*_'.repeat(20_000) + '>'.repeat(5_000));
    expect(performance.now() - startedAt).toBeLessThan(2_000);
  });
});

describe('MarkdownStream', () => {
  it('gives the same nodes for what is complete', () => {
    const stream = new MarkdownStream();
    const [first] = stream.parse('one\n\ntwo\n\nthr').nodes;
    expect(stream.parse('one\n\ntwo\n\nthree').nodes[0]).toBe(first);
  });

  it('gives the same result piece by piece', async () => {
    const text = '# A\n\nSome *text*\n\n1. one\n2. two\n\n   more\n\n> quote\n\n```\ncode\n\nmore\n```\nend';
    const stream = new MarkdownStream();
    for (let end = 1; end < text.length; end++) stream.parse(text.slice(0, end));
    const whole = document.createElement('div');
    render(<>{stream.parse(text).nodes}</>, whole);
    const shown = show(text);
    await settle();
    expect(whole.textContent).toBe(shown.textContent);
    expect(shown.querySelectorAll('li')).toHaveLength(2);
  });

  it('builds only the last row of a table that grows', () => {
    const stream = new MarkdownStream();
    const rowsOf = (text: string): unknown[] => {
      const [frame] = stream.parse(text).nodes;
      const table = (frame?.props as { children: { props: { children: [unknown, { props: { nodes: unknown[] } }] } } }).children;
      return table.props.children[1].props.nodes;
    };
    const before = rowsOf('| a |\n| - |\n| same |\n| same |\n| x');
    const after = rowsOf('| a |\n| - |\n| same |\n| same |\n| xyz |\n| new |');
    expect(after.slice(0, 2)).toEqual([expect.anything(), expect.anything()]);
    expect(after[0]).toBe(before[0]);
    expect(after[1]).toBe(before[1]);
    expect(after[2]).not.toBe(before[2]);
    expect(after).toHaveLength(4);
  });

  it('builds only the last item of a list that grows', () => {
    const stream = new MarkdownStream();
    const itemsOf = (text: string): unknown[] => (stream.parse(text).nodes[0]?.props as unknown as { nodes: unknown[] }).nodes;
    const before = itemsOf('- one\n- two\n- th');
    const after = itemsOf('- one\n- two\n- three');
    expect(after.map((item, at) => item === before[at])).toEqual([true, true, false]);
  });

  it('starts again when the text was replaced', () => {
    const stream = new MarkdownStream();
    stream.parse('one\n\ntwo\n\nthree');
    expect(stream.parse('other').nodes).toHaveLength(1);
  });
});

describe('A long text', () => {
  const long = Array.from({ length: 400 }, (_, at) => `Paragraph ${at} with some **words** in it.`).join('\n\n');

  it('is drawn in several frames', async () => {
    const box = show(long);
    const first = box.querySelectorAll('p').length;
    expect(first).toBeGreaterThan(10);
    expect(first).toBeLessThan(100);
    await settle();
    expect(box.querySelectorAll('p')).toHaveLength(400);
  });

  it('draws the rows of one table in several frames', async () => {
    const rows = Array.from({ length: 300 }, (_, at) => `| row ${at} | some words for the width |`).join('\n');
    const box = show(`| a | b |\n| - | - |\n${rows}`);
    expect(box.querySelectorAll('tbody tr').length).toBeLessThan(150);
    await settle();
    expect(box.querySelectorAll('tbody tr')).toHaveLength(300);
  });

  it('moves to another place without being drawn again', async () => {
    const box = document.createElement('div');
    const showAs = (name: string): Promise<void> => act(() => render(<div key={name}><Markdown text={long} /></div>, box));
    await showAs('live');
    await settle();
    const paragraph = box.querySelector('p');
    await showAs('saved');
    expect(box.querySelector('p')).toBe(paragraph);
    expect(box.querySelectorAll('p')).toHaveLength(400);
  });
});
