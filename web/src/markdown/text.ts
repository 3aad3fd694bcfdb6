// Controls, marks of direction, and what takes no room; joiners, which emoji and some scripts need, are
// not among them. The first alternative are the flags of parts of a country.
const HIDDEN =
  // eslint-disable-next-line no-control-regex, no-misleading-character-class -- these are what must be shown
  /\u{1f3f4}[\u{e0061}-\u{e007a}]+\u{e007f}|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

/** Return the text with every character that is not seen written out, and with plain line ends. */
export function escapeInvisible(text: string): string {
  const code = (char: string): string => (char.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0');
  return text.replace(/\r\n?/g, '\n').replace(HIDDEN, (found) => (found.startsWith('\u{1f3f4}') ? found : `⟨U+${code(found)}⟩`));
}

/** Return a text on one line, cut to a length. */
export function oneLine(text: string, maxChars = 200): string {
  const shown = escapeInvisible(text).replace(/\s+/g, ' ').trim();
  return shown.length > maxChars ? `${shown.slice(0, maxChars - 1)}…` : shown;
}
