import type { JSX } from 'preact';
import { CopyButton } from '../../components/CopyButton';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';

export interface NoteSpot {
  path: string;
  /** The lines that a result cites; 0 when the note as a whole was opened. */
  from: number;
  lines: number;
}

const MAX_LINES = 500;

/** A note as it is written; the cited lines are marked. */
export function NoteDialog({ agentId, spot, onClose }: { agentId: string; spot: NoteSpot; onClose: () => void }): JSX.Element {
  const first = Math.max(1, spot.from - 20);
  const { data, error, reload } = useRequest('memory.get', { agentId, path: spot.path, from: first, lines: MAX_LINES });
  const isCited = (line: number): boolean => line >= spot.from && line < spot.from + spot.lines;
  return (
    <Dialog title={oneLine(spot.path, 80)} onClose={onClose} wide>
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {data && (
        <>
          <div class="row">
            <span class="soft small">
              From line {data.from}
              {data.more && `; there is more than these ${data.lines} lines`}
            </span>
            <span class="spread">
              <CopyButton getText={() => data.text} />
            </span>
          </div>
          <pre class="note-text" tabIndex={0} role="region" aria-label={`Text of ${spot.path}`}>
            {data.text.split('\n').map((line, at) => {
              const number = data.from + at;
              return isCited(number) ? (
                <mark key={number}>{escapeInvisible(line)}{'\n'}</mark>
              ) : (
                <span key={number}>{escapeInvisible(line)}{'\n'}</span>
              );
            })}
          </pre>
        </>
      )}
    </Dialog>
  );
}
