import './Conversations.css';
import type { JSX } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { Button } from '../components/Button';
import { Dot } from '../components/Dot';
import { randomId } from '../gateway/device';
import { describeError } from '../gateway/errors';
import { isConnected } from '../gateway/gateway';
import { formatAgo } from '../state/format';
import {
  defaultAgentId,
  hasOlderSessions,
  isSessionsLoaded,
  mainSessionKey,
  newSessionKey,
  placeOf,
  sessionsError,
  titleOf,
} from '../state/sessions';
import { Link } from './Link';
import { navigate, route } from './router';
import { useShortcut } from './shortcuts';
import { useConversationSearch } from './useConversationSearch';

const PAGE = 60;

/** The conversations with a search; the newest first. */
export function Conversations({ onNavigate }: { onNavigate: () => void }): JSX.Element {
  const [search, setSearch] = useState('');
  const [shown, setShown] = useState(PAGE);
  const field = useRef<HTMLInputElement>(null);
  const current = route.value.path === 'chat' ? (route.value.query.session ?? mainSessionKey()) : '';
  const start = (): void => {
    navigate('chat', { session: newSessionKey(defaultAgentId(), randomId()) });
    onNavigate();
  };
  useShortcut('Alt+N', 'Start a new conversation', start);
  useShortcut('Alt+K', 'Search the conversations', () => field.current?.focus());
  const found = useConversationSearch(search);
  return (
    <section class="conversations" aria-label="Conversations">
      <header>
        <h2>Conversations</h2>
        <Button kind="quiet" small icon="plus" label="New conversation" disabled={!isConnected.value} onClick={start} />
      </header>
      <input
        ref={field}
        class="input conversations-search"
        type="search"
        aria-label="Search the conversations"
        placeholder="Search"
        value={search}
        onInput={(event) => setSearch(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== 'Escape' || !search) return;
          event.stopPropagation(); // it would stop an answer
          setSearch('');
        }}
      />
      <div class="conversations-list">
        {found.slice(0, shown).map((row) => (
          <Link
            key={row.key}
            to="chat"
            query={{ session: row.key }}
            class="conversation"
            isCurrent={row.key === current}
            title={row.key}
            onNavigate={onNavigate}
          >
            <span class="clip">{titleOf(row, row.key)}</span>
            <small class="clip">
              {row.hasActiveRun && <Dot tone="accent" />}
              {placeOf(row)} · {row.hasActiveRun ? 'answering' : formatAgo(row.updatedAt)}
            </small>
          </Link>
        ))}
        {found.length > shown && (
          <Button kind="quiet" small onClick={() => setShown(shown + PAGE)}>
            Show more
          </Button>
        )}
        {found.length > 0 && found.length <= shown && !search && hasOlderSessions.value && (
          <p class="conversations-note">Older ones are found by their name with the search.</p>
        )}
        {!found.length && <p class="conversations-note">{emptyText(search)}</p>}
      </div>
    </section>
  );
}

function emptyText(search: string): string {
  if (sessionsError.value !== null) return describeError(sessionsError.value);
  if (!isSessionsLoaded.value) return 'Loading…';
  if (search) return 'No conversation matches.';
  return 'No conversations yet: write a message to start one.';
}
