// Text becomes DOM nodes: paragraphs, code, bold, links to http(s). Nothing here ever makes HTML,
// so whatever a model or a tool says stays text. Every pattern is linear in the text's length.

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\s]{0,40})[^`]*$/;
const INLINE =
  /(`{1,2})([^`\n]+)\1|\*\*([^*\n]+)\*\*|\[([^[\]\n]{1,300})\]\((https?:\/\/[^\s()<>]+)\)|https?:\/\/[^\s<>"'`]+/g;

/** The nodes that show `text`. */
export function nodes(text) {
  const made = document.createDocumentFragment();
  let paragraph = [];
  let fence = null; // {mark, lines} while inside a block of code
  const end = () => {
    if (paragraph.length) made.append(element('p', inline(paragraph.join('\n'))));
    paragraph = [];
  };
  for (const line of text.split('\n')) {
    if (fence) {
      if (closes(line, fence.mark)) {
        made.append(code(fence));
        fence = null;
      } else fence.lines.push(line);
      continue;
    }
    const opened = FENCE.exec(line);
    if (opened) {
      end();
      fence = { mark: opened[1], language: opened[2], lines: [] };
    } else if (line.trim()) paragraph.push(line);
    else end();
  }
  end();
  if (fence) made.append(code(fence)); // still being written
  return made;
}

export function element(name, ...children) {
  const made = document.createElement(name);
  made.append(...children);
  return made;
}

function closes(line, mark) {
  const found = line.trim();
  return found.length >= mark.length && found === mark[0].repeat(found.length);
}

function code({ language, lines }) {
  const block = element('pre', element('code', lines.join('\n')));
  block.tabIndex = 0; // so that the keyboard can scroll it
  if (language) block.dataset.language = language;
  return block;
}

function inline(text) {
  const made = document.createDocumentFragment();
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    made.append(text.slice(at, found.index));
    at = found.index + found[0].length;
    const [whole, , codeText, bold, label, address] = found;
    if (codeText !== undefined) made.append(element('code', codeText));
    else if (bold !== undefined) made.append(element('strong', bold));
    else if (label !== undefined) made.append(link(address, label) ?? whole);
    else {
      const bare = whole.replace(/[.,;:!?)\]}*]{1,20}$/, '');
      made.append(link(bare, bare) ?? bare, whole.slice(bare.length));
    }
  }
  made.append(text.slice(at));
  return made;
}

/** A link, or nothing when the address is none; a label cannot hide where it leads. */
function link(address, label) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return null;
  const made = element('a', label);
  made.href = url.href;
  made.title = url.href;
  made.target = '_blank';
  made.rel = 'noopener noreferrer nofollow';
  if (label === address && !url.username) return made;
  const host = element('span', ` (${url.host})`);
  host.className = 'aside';
  return element('span', made, host);
}
