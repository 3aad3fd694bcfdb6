import type { JSX } from 'preact';
import { navigate } from '../../app/router';
import { Button } from '../../components/Button';
import { CopyButton } from '../../components/CopyButton';
import { Icon } from '../../components/Icon';
import { describeError } from '../../gateway/errors';
import { call } from '../../gateway/gateway';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { formatCount, formatDateTime, formatDuration, formatTime, formatUsd } from '../../state/format';
import { showToast } from '../../state/toasts';
import { Blocks } from './Blocks';
import type { Conversation } from './conversation';
import { saveDraft } from './drafts';
import { MessageImage } from './MessageImage';
import type { Figures, Turn } from './turns';

// Below the first, nothing was waited for; above the second, the person was away.
const MIN_DURATION_MS = 100;
const MAX_DURATION_MS = 3_600_000;

interface Props {
  turn: Turn;
  conversation: Conversation;
}

/** One turn of the history. */
export function TurnView({ turn, conversation }: Props): JSX.Element {
  if (turn.kind === 'note') return <p class="chat-note">{escapeInvisible(turn.text)}</p>;
  if (turn.kind === 'question')
    return (
      <article class="chat-question" aria-label="You wrote">
        {turn.images.map((image) => (
          <MessageImage key={image.index} image={image} sessionKey={conversation.key} />
        ))}
        {turn.files.map((file) => (
          <span key={file} class="chat-file">
            <Icon name="file" />
            {oneLine(file, 80)}
          </span>
        ))}
        {turn.text && <p dir="auto">{escapeInvisible(turn.text)}</p>}
        <footer class="chat-meta">
          <time dateTime={new Date(turn.atMs).toISOString()} title={formatDateTime(turn.atMs)}>
            {formatTime(turn.atMs)}
          </time>
          {turn.source && <span>from {oneLine(turn.source, 40)}</span>}
          <CopyButton getText={() => turn.text} />
          <BranchButton label="Edit in a branch" messageId={turn.key} conversation={conversation} />
        </footer>
      </article>
    );
  return (
    <article class="chat-answer" aria-label="The agent answered">
      <Blocks blocks={turn.blocks} conversation={conversation} />
      {turn.note && <p class={turn.isError ? 'chat-failure' : 'chat-note'}>{escapeInvisible(turn.note)}</p>}
      <footer class="chat-meta" hidden={turn.blocks.some((block) => block.kind === 'tool' && block.output === null)}>
        <span>{describeFigures(turn.figures)}</span>
        <time dateTime={new Date(turn.atMs).toISOString()} title={formatDateTime(turn.atMs)}>
          {formatTime(turn.atMs)}
        </time>
        <CopyButton getText={() => copyText(turn)} />
        <BranchButton label="Branch" messageId={turn.messageId} conversation={conversation} />
      </footer>
    </article>
  );
}

/** Return what an answer says; of one that says nothing, how it ended. */
function copyText({ blocks, note }: Extract<Turn, { kind: 'answer' }>): string {
  return blocks.map((block) => (block.kind === 'text' ? block.text : '')).join('\n\n').trim() || note;
}

function describeFigures({ model, durationMs, tokens, costUsd }: Figures): string {
  const parts = [
    oneLine(model, 60),
    durationMs >= MIN_DURATION_MS && durationMs < MAX_DURATION_MS ? formatDuration(durationMs) : '',
    tokens ? `${formatCount(tokens)} tokens` : '',
    costUsd ? formatUsd(costUsd) : '',
  ];
  return parts.filter(Boolean).join(' · ');
}

/** Continues the conversation from a message, in a conversation of its own. */
function BranchButton({ label, messageId, conversation }: { label: string; messageId: string; conversation: Conversation }): JSX.Element {
  const branch = (): void => {
    call('sessions.branch', { key: conversation.key, messageId }).then(
      ({ key, draft }) => {
        if (draft) saveDraft(key, draft);
        navigate('chat', { session: key });
      },
      (error: unknown) => showToast({ tone: 'bad', text: describeError(error) }),
    );
  };
  return (
    <Button kind="quiet" small onClick={branch}>
      {label}
    </Button>
  );
}
