import type { JSX } from 'preact';
import { oneLine } from '../../markdown/text';
import type { CommandRow } from '../../protocol/results';

interface Props {
  id: string;
  commands: readonly CommandRow[];
  selected: number;
  onSelect: (command: CommandRow) => void;
}

const SHOWN = 40;

/** Return the commands that what is written may become; nothing when it is no command. */
export function matchCommands(text: string, commands: readonly CommandRow[]): CommandRow[] {
  const start = /^\/(\S*)$/.exec(text)?.[1]?.toLowerCase();
  if (start === undefined) return [];
  const names = (row: CommandRow): string[] => [row.name, ...(row.textAliases ?? []).map((alias) => alias.slice(1))];
  const leading = commands.filter((row) => names(row).some((name) => name.startsWith(start)));
  const containing = commands.filter((row) => !leading.includes(row) && row.description.toLowerCase().includes(start));
  return [...leading, ...(start.length > 2 ? containing : [])].slice(0, SHOWN);
}

/** The commands that fit what is written; the field keeps the focus. */
export function CommandPalette({ id, commands, selected, onSelect }: Props): JSX.Element {
  return (
    <ul class="palette" id={id} role="listbox" aria-label="Commands">
      {commands.map((command, at) => (
        <li
          key={command.name}
          id={`${id}-${at}`}
          role="option"
          aria-selected={at === selected}
          class="palette-item"
          ref={(element) => {
            if (at === selected) element?.scrollIntoView({ block: 'nearest' });
          }}
          onMouseDown={(event) => {
            event.preventDefault(); // the field keeps the focus
            onSelect(command);
          }}
        >
          <code>/{oneLine(command.name, 40)}</code>
          <span class="clip">{oneLine(command.description, 120)}</span>
        </li>
      ))}
    </ul>
  );
}
