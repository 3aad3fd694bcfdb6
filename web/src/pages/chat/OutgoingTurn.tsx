import type { JSX } from 'preact';
import { Button } from '../../components/Button';
import { Icon } from '../../components/Icon';
import { isConnected } from '../../gateway/gateway';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { restoreDraft } from './drafts';
import { discard, sendAgain, type Outgoing } from './outbox';

interface Props {
  entry: Outgoing;
  isQueued: boolean;
}

/** A message of this page that the history does not have yet. */
export function OutgoingTurn({ entry, isQueued }: Props): JSX.Element {
  const { runId, sessionKey, text, attachments, state, error } = entry;
  const takeBack = (): void => {
    discard(runId);
    restoreDraft(sessionKey, text, attachments);
  };
  return (
    <article class="chat-question" aria-label="You wrote" data-outgoing={state}>
      {attachments.map(({ name, mime, url }, at) =>
        mime.startsWith('image/') ? (
          <span key={at} class="chat-image">
            <img src={url} alt={oneLine(name, 80)} />
          </span>
        ) : (
          <span key={at} class="chat-file">
            <Icon name="file" />
            {oneLine(name, 80)}
          </span>
        ),
      )}
      {text && <p dir="auto">{escapeInvisible(text)}</p>}
      {state === 'refused' && (
        <p class="chat-failure" role="alert">
          {escapeInvisible(error)}
        </p>
      )}
      <footer class="chat-meta">
        <span>{describe(state, isQueued)}</span>
        {state === 'refused' && (
          <Button small onClick={() => sendAgain(runId)}>
            Send again
          </Button>
        )}
        {(state === 'refused' || (state === 'waiting' && !isConnected.value)) && (
          <Button kind="quiet" small onClick={takeBack}>
            Edit
          </Button>
        )}
      </footer>
    </article>
  );
}

function describe(state: Outgoing['state'], isQueued: boolean): string {
  if (state === 'refused') return 'Not sent';
  if (state === 'waiting' && !isConnected.value) return 'Waits for the connection';
  if (state === 'sent') return isQueued ? 'Queued' : '';
  return 'Sending…';
}
