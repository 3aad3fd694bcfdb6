import { useEffect, useState } from 'preact/hooks';
import type { SessionRow } from '../protocol/results';
import { hasOlderSessions, searchSessions, sessions, titleOf } from '../state/sessions';

const DEBOUNCE_MS = 300;
const NONE: readonly SessionRow[] = [];

/** Return the conversations that match: those that are loaded at once, then older ones of the gateway. */
export function useConversationSearch(search: string): readonly SessionRow[] {
  const [older, setOlder] = useState(NONE);
  const text = search.trim().toLowerCase();
  const needsGateway = text !== '' && hasOlderSessions.value;
  useEffect(() => {
    setOlder(NONE);
    if (!needsGateway) return undefined;
    let isCurrent = true;
    const timer = setTimeout(() => {
      searchSessions(text).then(
        (found) => {
          if (isCurrent) setOlder(found);
        },
        () => undefined, // those that are loaded are shown
      );
    }, DEBOUNCE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [text, needsGateway]);
  const found = sessions.value.filter((row) => matches(row, text));
  const known = new Set(found.map(({ key }) => key));
  return [...found, ...older.filter(({ key }) => !known.has(key))];
}

function matches(row: SessionRow, text: string): boolean {
  return [titleOf(row, row.key), row.key, row.channel ?? ''].some((each) => each.toLowerCase().includes(text));
}
