import './Logs.css';
import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { CopyButton } from '../../components/CopyButton';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { escapeInvisible } from '../../markdown/text';
import { formatCount } from '../../state/format';
import { filterLines, LEVELS, type Level } from './logLines';
import { LogList } from './LogList';
import { useLogTail } from './useLogTail';

const LABELS: Readonly<Record<Level, string>> = {
  trace: 'All levels',
  debug: 'Debug and above',
  info: 'Info and above',
  warn: 'Warnings and errors',
  error: 'Errors',
  fatal: 'Fatal errors',
};

/** The log of the gateway as it is written. */
export default function LogsPage(): JSX.Element {
  const [isPaused, setPaused] = useState(false);
  const [level, setLevel] = useState<Level>('trace');
  const [text, setText] = useState('');
  const { lines, file, error, isLoaded, isCut, clear } = useLogTail(isPaused);
  const shown = useMemo(() => filterLines(lines, level, text), [lines, level, text]);
  return (
    <Page title="Logs" isFixed>
      <div class="logs">
        <div class="logs-tools row">
          <input
            class="input logs-search"
            type="search"
            placeholder="Filter"
            aria-label="Filter lines by text"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <select
            class="input logs-level"
            aria-label="Level"
            value={level}
            onChange={(event) => setLevel(event.currentTarget.value as Level)}
          >
            {LEVELS.map((each) => (
              <option key={each} value={each}>
                {LABELS[each]}
              </option>
            ))}
          </select>
          <Button small icon={isPaused ? 'play' : 'stop'} pressed={isPaused} onClick={() => setPaused(!isPaused)}>
            {isPaused ? 'Resume' : 'Pause'}
          </Button>
          <CopyButton label="Copy lines" getText={() => shown.map(({ raw }) => raw).join('\n')} />
          <Button small kind="quiet" onClick={clear}>
            Clear
          </Button>
          <span class="soft tiny spread" role="status">
            {formatCount(shown.length)} of {formatCount(lines.length)} lines{isPaused && ', paused'}
          </span>
        </div>
        {error !== null && <ErrorState error={error} isRepeated />}
        {!isLoaded && error === null && <Loading />}
        {isLoaded && !shown.length && (
          <EmptyState icon="log" title={lines.length ? 'No line matches' : 'The log has no lines yet'}>
            {lines.length ? 'Change the filter or the level.' : 'What the gateway does from now on appears here.'}
          </EmptyState>
        )}
        {shown.length > 0 && <LogList lines={shown} isFollowing={!isPaused} />}
        <p class="soft tiny clip logs-file" title={file}>
          {isCut && 'Earlier lines are in the file. '}
          <span class="mono">{escapeInvisible(file)}</span>
        </p>
      </div>
    </Page>
  );
}
