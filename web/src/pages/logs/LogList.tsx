import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { LogEntry } from './LogEntry';
import type { LogLine } from './logLines';

interface Props {
  lines: readonly LogLine[];
  isFollowing: boolean;
}

const STEP = 300;
const NEAR_END_PX = 40;

/** The newest lines, at the end; earlier ones on request. It stays at the end until the person scrolls up. */
export function LogList({ lines, isFollowing }: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [limit, setLimit] = useState(STEP);
  const shown = lines.slice(-limit);
  useEffect(() => {
    if (isFollowing && isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, isFollowing]);
  const track = (): void => {
    const { current } = box;
    if (current) isAtEnd.current = current.scrollHeight - current.scrollTop - current.clientHeight < NEAR_END_PX;
  };
  return (
    <div class="log-list" ref={box} onScroll={track} tabIndex={0} role="log" aria-label="Log" aria-live="off">
      {lines.length > limit && (
        <Button small kind="quiet" onClick={() => setLimit(limit + STEP)}>
          Show earlier lines
        </Button>
      )}
      {shown.map((line) => (
        <LogEntry key={line.id} line={line} />
      ))}
    </div>
  );
}
