import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const FOLDER = join(import.meta.dirname, '..', 'src');
const TOKENS = join('styles', 'tokens.css');
const LITERALS = [
  ['colour', /#[0-9a-f]{3,8}\b|\b(?:rgb|hsl|oklch|light-dark)a?\(/i],
  ['size of text', /font(?:-size)?:[^;]*\d(?:px|rem|pt)/],
  ['radius', /border(?:-\w+)*-radius:[^;]*[1-9]px/],
] as const;

const files = readdirSync(FOLDER, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.css') && name !== TOKENS);

describe('styles', () => {
  it.each(LITERALS)('have no %s of their own', (_, literal) => {
    const found = files.flatMap((name) => {
      const lines = readFileSync(join(FOLDER, name), 'utf8').split('\n');
      return lines.filter((line) => literal.test(line)).map((line) => `${name}: ${line.trim()}`);
    });
    expect(files.length).toBeGreaterThan(30);
    expect(found).toEqual([]);
  });

  it('use no token that does not exist', () => {
    const defined = new Set(readFileSync(join(FOLDER, TOKENS), 'utf8').match(/--[\w-]+(?=:)/g));
    const used = files.flatMap((name) => readFileSync(join(FOLDER, name), 'utf8').match(/(?<=var\()--[\w-]+/g) ?? []);
    expect([...new Set(used)].filter((name) => !defined.has(name))).toEqual([]);
  });

  it('have the same dark colours by the system and by choice', () => {
    const [, system, chosen] = readSets();
    expect(chosen).toEqual(system);
  });

  it('have text that can be read on every surface, in light and in dark', () => {
    const low = readSets().flatMap((colours, at) =>
      ['text', 'soft', 'faint', 'accent', 'ok', 'warn', 'bad', 'info'].flatMap((text) =>
        ['bg', 'panel', 'sunk', colours.has(`--${text}-soft`) ? `${text}-soft` : 'accent-soft']
          .map((surface) => ({ surface, ratio: contrast(colours.get(`--${text}`) ?? '', colours.get(`--${surface}`) ?? '') }))
          .filter(({ ratio }) => !(ratio >= 4.5))
          .map(({ surface, ratio }) => `${text} on ${surface} of set ${at}: ${ratio.toFixed(2)}`),
      ),
    );
    expect(low).toEqual([]);
  });
});

/** Return the colours in light, in dark by the system, and in dark by choice. */
function readSets(): Map<string, string>[] {
  const parts = readFileSync(join(FOLDER, TOKENS), 'utf8').split(/:root[^{]*\{/).slice(1);
  expect(parts).toHaveLength(3);
  return parts.map((part) => new Map([...part.matchAll(/(--[\w-]+): (#\w{6});/g)].map(([, name = '', colour = '']) => [name, colour])));
}

/** Return the contrast of two colours as WCAG defines it. */
function contrast(one: string, other: string): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
