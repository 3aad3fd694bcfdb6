import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { Diff } from '../../components/Diff';
import { Dot } from '../../components/Dot';
import { Icon } from '../../components/Icon';
import { JsonView } from '../../components/JsonView';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { waitingCalls } from '../../state/approvals';
import { countChanges } from '../../state/diff';
import { MessageImage } from './MessageImage';
import { describeState, diffOf, iconOf, subjectOf } from './toolView';
import type { ToolBlock } from './turns';

interface Props {
  block: ToolBlock;
  sessionKey: string;
}

const MAX_OUTPUT_CHARS = 20_000;

/** A tool call: one line that opens to its arguments, its output, or the diff of an edit. */
export function ToolCard({ block, sessionKey }: Props): JSX.Element {
  const diff = useMemo(() => diffOf(block), [block]);
  const [isOpen, setOpen] = useState(diff !== null && diff.length <= 24);
  const changes = diff ? countChanges(diff) : null;
  const { words, tone } = describeState(block, waitingCalls.value.has(block.id));
  const facts = [changes && `+${changes.added} −${changes.removed}`, block.isError && 'failed', words].filter(Boolean);
  return (
    <details
      class={`chat-card chat-tool ${block.isError ? 'chat-tool-failed' : ''}`}
      open={isOpen}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>
        <Icon name={iconOf(block.name)} />
        <b>{oneLine(block.name, 60)}</b>
        <code class="clip">{subjectOf(block)}</code>
        <span class="chat-card-facts">
          {tone && <Dot tone={tone} />}
          {facts.join(' · ')}
        </span>
      </summary>
      {isOpen && (
        <div class="chat-card-body">
          {diff ? (
            <Diff lines={diff} label={`Changes of ${subjectOf(block)}`} />
          ) : (
            <div class="chat-tool-args">
              <JsonView value={block.args} />
            </div>
          )}
          {block.images.map((image) => (
            <MessageImage key={image.index} image={image} sessionKey={sessionKey} />
          ))}
          {block.output !== null && !(diff && !block.isError) && <Output text={block.output} />}
          {block.output === null && !diff && (
            <p class="chat-tool-args tiny soft">{tone ? 'No output yet.' : 'Its output was not stored.'}</p>
          )}
        </div>
      )}
    </details>
  );
}

function Output({ text }: { text: string }): JSX.Element {
  const shown = text.length > MAX_OUTPUT_CHARS ? `…${text.slice(-MAX_OUTPUT_CHARS)}` : text;
  return (
    <pre class="chat-output" tabIndex={0} aria-label="Output">
      {escapeInvisible(shown) || '(no output)'}
    </pre>
  );
}
