import type { JSX } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { Button } from '../../components/Button';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { PendingItem } from '../../components/PendingItem';
import { isConnected, may } from '../../gateway/gateway';
import { pending, sessionOf } from '../../state/approvals';
import type { Conversation } from './conversation';
import { LiveAnswer } from './LiveAnswer';
import { OlderMessages } from './OlderMessages';
import { outgoing } from './outbox';
import { OutgoingTurn } from './OutgoingTurn';
import { chunkTurns } from './chunks';
import { buildTurns, idOf } from './turns';
import { TurnWindow } from './TurnWindow';
import { findRetry, retry } from './retry';
import { useStickyScroll } from './useStickyScroll';
import { Viewport } from './viewport';

const NEWEST_CHUNKS = 2;

/** What was said, what is being said, and what waits to be sent. */
export function ChatLog({ conversation }: { conversation: Conversation }): JSX.Element {
  const log = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const messages = conversation.messages.value;
  const boundaries = useRef(new Set<string>());
  const turns = useMemo(() => buildTurns(messages), [messages]);
  const chunks = useMemo(() => chunkTurns(turns, boundaries.current), [turns]);
  const viewport = useMemo(() => new Viewport(), []);
  useEffect(() => viewport.start(log.current), [viewport]);
  const runs = conversation.runs.value;
  const waiting = pending.value.filter((item) => sessionOf(item) === conversation.key);
  const unsent = outgoing.value.filter(({ sessionKey }) => sessionKey === conversation.key);
  const note = useCallback((isAtEnd: boolean) => (conversation.isAtEnd = isAtEnd), [conversation]);
  const { keepEnd, keepPlace } = useStickyScroll(log, content, note);
  useLayoutEffect(keepEnd, [conversation.version.value, messages, unsent.length, waiting.length, keepEnd]);
  const firstKey = turns[0]?.key;
  useLayoutEffect(keepPlace, [firstKey, keepPlace]);
  const isEmpty = conversation.isLoaded.value && !turns.length && !runs.length && !unsent.length;
  const failed = may('write') ? findRetry(turns, runs, unsent) : null;
  const runIds = new Set(runs.map(({ runId }) => runId));
  return (
    <div class="chat-log" ref={log} role="log" aria-live="off" aria-label="Conversation" tabIndex={0}>
      <div class="chat-column" ref={content}>
        {conversation.hasOlder.value && <OlderMessages conversation={conversation} firstId={idOf(messages[0])} />}
        {chunks.map((chunk, at) => (
          <TurnWindow
            key={chunk[0]?.key}
            turns={chunk}
            conversation={conversation}
            viewport={viewport}
            isNewest={at >= chunks.length - NEWEST_CHUNKS}
          />
        ))}
        {runs.map((run) => (
          <div key={run.runId} class="chat-live">
            {unsent
              .filter(({ runId }) => runId === run.runId)
              .map((entry) => (
                <OutgoingTurn key={entry.runId} entry={entry} isQueued={false} />
              ))}
            <LiveAnswer run={run} version={conversation.version.value} />
          </div>
        ))}
        {unsent
          .filter(({ runId }) => !runIds.has(runId))
          .map((entry) => (
            <OutgoingTurn key={entry.runId} entry={entry} isQueued={runs.some(({ state }) => state === 'running')} />
          ))}
        {failed && (
          <div>
            <Button small onClick={() => retry(failed, conversation.key)}>
              Try again
            </Button>
          </div>
        )}
        {waiting.map((item) => (
          <PendingItem key={item.id} item={item} isInChat />
        ))}
        {conversation.error.value !== null && isConnected.value && (
          <ErrorState error={conversation.error.value} onRetry={() => void conversation.load()} />
        )}
        {!conversation.isLoaded.value && conversation.error.value === null && <Loading label="Loading the conversation" />}
        {isEmpty && (
          <EmptyState icon="chat" title="What can I do for you?">
            Write a message below. Files can be attached, pasted or dropped; a / shows the commands.
          </EmptyState>
        )}
      </div>
    </div>
  );
}
