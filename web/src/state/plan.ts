/** The text of an approval in parts: what runs, and the facts about it. Nothing of it is left out. */

export interface Plan {
  body: string;
  rows: [name: string, value: string][];
}

const FACT = /^([a-z][a-z ]{1,30}): (.+)$/;
const COMMAND = /^command \(.+\):$/;

/** Return the parts of a text of the known form; of any other form, the text itself. */
export function parsePlan(detail: string, reason: string): Plan {
  const lines = detail.split('\n');
  const at = lines.findIndex((line) => COMMAND.test(line));
  const facts = lines.slice(0, at).map((line) => FACT.exec(line));
  const commands = lines.slice(at + 1);
  const isKnown = at >= 0 && facts.every((fact) => fact !== null) && commands.every((line) => line.startsWith('    ') || !line);
  if (!isKnown) return { body: detail, rows: [] };
  const rows = facts.map(([, name, value]): Plan['rows'][number] => [capitalise(name ?? ''), value ?? '']);
  return {
    body: commands.map((line) => line.slice(4)).join('\n'),
    rows: rows.filter(([name, value]) => name !== 'Asked because' || value !== reason),
  };
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
