import './chat.css';
import type { JSX } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';
import { route } from '../../app/router';
import { useShortcut } from '../../app/shortcuts';
import { Badge } from '../../components/Badge';
import { Page } from '../../components/Page';
import { hello } from '../../gateway/gateway';
import { mainSessionKey, sessions, titleOf } from '../../state/sessions';
import { showToast } from '../../state/toasts';
import { describeError } from '../../gateway/errors';
import { ChatLog } from './ChatLog';
import { ChatMenu } from './ChatMenu';
import { Composer } from './Composer';
import { ContextMeter } from './ContextMeter';
import { Conversation } from './conversation';
import { SpentBadge } from './SpentBadge';

/** The conversation with an agent. */
export default function ChatPage(): JSX.Element {
  const named = route.value.query.session;
  const isReady = hello.value !== null;
  const key = named ?? (isReady ? mainSessionKey() : '');
  return <ChatOf key={key} sessionKey={key} />;
}

function ChatOf({ sessionKey }: { sessionKey: string }): JSX.Element {
  const conversation = useMemo(() => new Conversation(sessionKey), [sessionKey]);
  useEffect(() => {
    if (!sessionKey) return undefined;
    conversation.start();
    return () => conversation.stop();
  }, [conversation, sessionKey]);
  const row = sessions.value.find(({ key }) => key === conversation.key) ?? conversation.info.value ?? undefined;
  const title = sessionKey ? titleOf(row, conversation.key) : 'Chat';
  const isAnswering = conversation.runs.value.some(({ state }) => state === 'running');
  const stop = (): void => {
    conversation.abort().catch((error: unknown) => showToast({ tone: 'bad', text: describeError(error) }));
  };
  useShortcut('Escape', 'Stop the answer', stop, isAnswering);
  const agent = row?.agentId ?? conversation.key.split(':')[1] ?? '';
  return (
    <Page
      title={title}
      isFixed
      badges={agent && (
          <span class="chat-agent">
            <Badge title="The agent of this conversation">{agent}</Badge>
          </span>
        )}
      aside={
        <>
          {row && <ContextMeter row={row} />}
          <SpentBadge conversation={conversation} />
          <ChatMenu conversation={conversation} title={title} />
        </>
      }
    >
      <ChatLog conversation={conversation} />
      <Composer conversation={conversation} row={row} isAnswering={isAnswering} onStop={stop} />
    </Page>
  );
}
