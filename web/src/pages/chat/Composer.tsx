import './Composer.css';
import type { JSX } from 'preact';
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useShortcut } from '../../app/shortcuts';
import { randomId } from '../../gateway/device';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { CommandRow, SessionRow } from '../../protocol/results';
import { AttachmentList } from './AttachmentList';
import { readFiles } from './attachments';
import { CommandPalette, matchCommands } from './CommandPalette';
import { ComposerTools } from './ComposerTools';
import type { Conversation } from './conversation';
import { draftFiles, draftVersion, loadDraft, storeDraft, storeFiles } from './drafts';
import { enqueue } from './outbox';

const TOUCH = matchMedia('(hover: none) and (pointer: coarse)');

interface Props {
  conversation: Conversation;
  row: SessionRow | undefined;
  isAnswering: boolean;
  onStop: () => void;
}

/** Where the next message is written. */
export function Composer({ conversation, row, isAnswering, onStop }: Props): JSX.Element {
  const { key } = conversation;
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(() => loadDraft(key));
  const files = draftFiles(key);
  const [problem, setProblem] = useState('');
  const [selected, setSelected] = useState(0);
  const [isClosed, setClosed] = useState(false);
  const [isOver, setOver] = useState(false);
  const paletteId = useId();
  const { data } = useRequest('commands.list', { sessionKey: key || 'main', scope: 'text' });
  const found = isClosed ? [] : matchCommands(text, data?.commands ?? []);
  const version = draftVersion.value;
  useEffect(() => setText(loadDraft(key)), [version, key]);
  useEffect(() => {
    if (!TOUCH.matches) field.current?.focus(); // on a phone that would open the keyboard
  }, [version]);
  useLayoutEffect(() => grow(field.current), [text]);
  useShortcut('/', 'Write a message', () => field.current?.focus());

  const write = (value: string): void => {
    setText(value);
    setSelected(0);
    setClosed(false);
    storeDraft(key, value);
  };
  const attach = (added: Iterable<File>): void => {
    setProblem('');
    void readFiles([...added], files).then(({ read, problems }) => {
      storeFiles(key, [...draftFiles(key), ...read]);
      setProblem(problems.join(' '));
    });
  };
  const send = (): void => {
    const message = text.trim();
    if ((!message && !files.length) || !key) return;
    enqueue({ runId: randomId(), sessionKey: key, text: message, attachments: files });
    write('');
    storeFiles(key, []);
    setProblem('');
  };
  const complete = (command: CommandRow): void => {
    write(`/${command.name}${command.acceptsArgs ? ' ' : ''}`);
    setClosed(true);
    field.current?.focus();
  };
  const press = (event: KeyboardEvent): void => {
    if (event.isComposing) return; // Enter ends the composition
    const chosen = found[selected];
    if (chosen && pressInPalette(event, chosen)) return;
    if (event.key !== 'Enter' || event.shiftKey || TOUCH.matches) return;
    event.preventDefault();
    send();
  };
  /** Returns whether the key was for the list of commands. */
  const pressInPalette = (event: KeyboardEvent, chosen: CommandRow): boolean => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const completes = event.key === 'Tab' || (event.key === 'Enter' && text !== `/${chosen.name}`);
    if (!move && !completes && event.key !== 'Escape') return false;
    event.preventDefault();
    event.stopPropagation();
    if (move) setSelected((selected + move + found.length) % found.length);
    else if (completes) complete(chosen);
    else setClosed(true);
    return true;
  };
  const over = (event: DragEvent): void => {
    event.preventDefault(); // the browser would open the file
    setOver(event.type === 'dragover');
    if (event.type === 'drop' && event.dataTransfer?.files.length) attach(event.dataTransfer.files);
  };
  const paste = (event: ClipboardEvent): void => {
    if (!event.clipboardData?.files.length) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  };
  const agent = oneLine(row?.agentId ?? key.split(':')[1] ?? 'the agent', 40);
  return (
    <div class="composer">
      {problem && (
        <p class="composer-problem" role="alert">
          {escapeInvisible(problem)}
        </p>
      )}
      <form
        class={`composer-box ${isOver ? 'composer-over' : ''}`}
        onSubmit={(event) => {
          event.preventDefault();
          send();
        }}
        onDragOver={over}
        onDragLeave={over}
        onDrop={over}
      >
        {found.length > 0 && <CommandPalette id={paletteId} commands={found} selected={selected} onSelect={complete} />}
        <AttachmentList attachments={files} onRemove={(removed) => storeFiles(key, files.filter((file) => file !== removed))} />
        <textarea
          dir="auto"
          ref={field}
          rows={1}
          aria-label="Message"
          placeholder={`Message ${agent} …`}
          autocomplete="off"
          enterkeyhint={TOUCH.matches ? 'enter' : 'send'}
          aria-autocomplete="list"
          aria-controls={found.length ? paletteId : undefined}
          aria-activedescendant={found.length ? `${paletteId}-${selected}` : undefined}
          value={text}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={press}
          onPaste={paste}
        />
        <ComposerTools
          conversation={conversation}
          row={row}
          canSend={text.trim() !== '' || files.length > 0}
          onFiles={attach}
          onCommands={() => {
            write('/');
            field.current?.focus();
          }}
          onStop={isAnswering ? onStop : null}
        />
      </form>
    </div>
  );
}

function grow(area: HTMLTextAreaElement | null): void {
  if (!area) return;
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight, innerHeight * 0.4)}px`;
}
