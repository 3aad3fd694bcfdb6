import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { formatAgo, formatBytes } from '../../state/format';
import type { NoteSpot } from './NoteDialog';
import { groupNotes } from './timeline';

const STEP = 60;

interface Props {
  agentId: string;
  onOpen: (spot: NoteSpot) => void;
}

/** The notes by the day that they are about, newest first. */
export function NoteTimeline({ agentId, onOpen }: Props): JSX.Element {
  const [limit, setLimit] = useState(STEP);
  const { data, error, isLoading, reload } = useRequest('memory.notes', { agentId, limit });
  return (
    <Card title="Notes" aside={data?.total}>
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {data && !data.notes.length && (
        <EmptyState icon="book" title="No notes yet">
          The agent writes notes while it works. Tell it something to remember.
        </EmptyState>
      )}
      {groupNotes(data?.notes ?? []).map((group) => (
        <section key={group.title} class="note-day" aria-label={group.title}>
          <h3>{group.title}</h3>
          <ul>
            {group.notes.map((note) => (
              <li key={note.path}>
                <Button kind="quiet" small onClick={() => onOpen({ path: note.path, from: 0, lines: 0 })}>
                  <span class="mono">{oneLine(note.path, 80)}</span>
                </Button>
                <span class="tiny soft">
                  {formatBytes(note.size)} · {formatAgo(note.updatedAtMs)}
                </span>
              </li>
            ))}
          </ul>
        </section>
      ))}
      {data && data.total > data.notes.length && (
        <Button small onClick={() => setLimit((shown) => shown + STEP)}>
          Show older notes
        </Button>
      )}
      {data && data.skipped.length > 0 && (
        <details class="note-skipped">
          <summary>{data.skipped.length} files are not read</summary>
          <ul>
            {data.skipped.map((file) => (
              <li key={file.path} class="small">
                <span class="mono">{oneLine(file.path, 80)}</span>: {escapeInvisible(file.why)}
              </li>
            ))}
          </ul>
        </details>
      )}
    </Card>
  );
}
