import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { Meter } from '../../components/Meter';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import type { MemoryHit } from '../../protocol/agent-results';
import type { NoteSpot } from './NoteDialog';

interface Props {
  agentId: string;
  onOpen: (spot: NoteSpot) => void;
  /** Called after each answer. */
  onFound: () => void;
}

const MAX_RESULTS = 20;

/** Search what an agent remembers, as the agent itself does. */
export function MemorySearch({ agentId, onOpen, onFound }: Props): JSX.Element {
  const [text, setText] = useState('');
  const [query, setQuery] = useState('');
  const { data, error, isLoading, reload } = useRequest(
    'memory.search',
    query ? { agentId, query, maxResults: MAX_RESULTS, minScore: 0 } : null,
  );
  useEffect(() => {
    if (data) onFound();
  }, [data, onFound]);
  const search = (event: Event): void => {
    event.preventDefault();
    const wanted = text.trim();
    if (wanted === query && wanted) reload();
    setQuery(wanted);
  };
  return (
    <Card title="Search" aside={data && query && <Badge>{data.mode === 'hybrid' ? 'words and meaning' : 'words'}</Badge>}>
      <div class="stack">
        <form class="memory-form" role="search" onSubmit={search}>
          <Field label="What to look for">
            {(ids) => (
              <input
                class="input"
                type="search"
                placeholder="What does Ada not eat?"
                {...ids}
                value={text}
                onInput={(event) => setText(event.currentTarget.value)}
              />
            )}
          </Field>
          <Button kind="primary" icon="search" type="submit" isBusy={isLoading} disabled={!text.trim()}>
            Search
          </Button>
        </form>
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading label="Searching" />}
        {data?.fallback && query && (
          <p class="soft small">
            {oneLine(data.fallback.from, 60)} was not used: {escapeInvisible(data.fallback.reason)}
          </p>
        )}
        {data && query && <Hits hits={data.results} onOpen={onOpen} />}
        {!query && (
          <EmptyState icon="search" title="Ask what the agent knows">
            Results have a score and the lines that they come from; open one to read the note.
          </EmptyState>
        )}
      </div>
    </Card>
  );
}

function Hits({ hits, onOpen }: { hits: readonly MemoryHit[]; onOpen: Props['onOpen'] }): JSX.Element {
  if (!hits.length)
    return (
      <EmptyState icon="book" title="Nothing found">
        Try other words, or check under Index that the notes are indexed.
      </EmptyState>
    );
  return (
    <ol class="memory-hits" aria-label="Results">
      {hits.map((hit) => (
        <li key={`${hit.path}:${hit.startLine}`}>
          <div class="memory-hit-head">
            <Button kind="quiet" small onClick={() => onOpen({ path: hit.path, from: hit.startLine, lines: hit.endLine - hit.startLine + 1 })}>
              <span class="mono">{oneLine(hit.citation, 120)}</span>
            </Button>
            <span class="memory-score">
              <Meter value={hit.score} label={`Score of ${hit.citation}`} />
              <span class="mono tiny">{hit.score.toFixed(3)}</span>
            </span>
          </div>
          <p class="memory-snippet">{escapeInvisible(hit.snippet)}</p>
        </li>
      ))}
    </ol>
  );
}
