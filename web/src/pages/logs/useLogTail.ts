import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { call, onOpen } from '../../gateway/gateway';
import { useInterval } from '../../state/useInterval';
import { appendLines, parseLine, type LogLine } from './logLines';

const POLL_MS = 1_500;
const LIMIT = 1_000;
const MAX_BYTES = 500_000;

interface LogTail {
  lines: readonly LogLine[];
  file: string;
  error: unknown;
  isLoaded: boolean;
  /** Lines were left out: before the first one shown, or between two polls. */
  isCut: boolean;
}

const NOTHING: LogTail = { lines: [], file: '', error: null, isLoaded: false, isCut: false };

/** Follow the log of the gateway from a cursor, unless paused. */
export function useLogTail(isPaused: boolean): LogTail & { clear: () => void } {
  const [tail, setTail] = useState<LogTail>(NOTHING);
  const cursor = useRef<number | null>(null);
  const isBusy = useRef(false);
  const lastId = useRef(0);
  const poll = useCallback(() => {
    if (isBusy.current) return;
    isBusy.current = true;
    call('logs.tail', { cursor: cursor.current, limit: LIMIT, maxBytes: MAX_BYTES })
      .then(
        (answer) => {
          cursor.current = answer.cursor;
          const added = answer.lines.map((raw) => parseLine(raw, ++lastId.current));
          setTail((before) => {
            const isSame = !added.length && before.isLoaded && before.error === null && before.file === answer.file;
            if (isSame) return before;
            return {
              lines: answer.reset ? added : appendLines(before.lines, added),
              file: answer.file,
              error: null,
              isLoaded: true,
              isCut: before.isCut || Boolean(answer.truncated),
            };
          });
        },
        (error: unknown) => setTail((before) => ({ ...before, error })),
      )
      .finally(() => {
        isBusy.current = false;
      });
  }, []);
  const pollUnlessPaused = useCallback(() => {
    if (!isPaused) poll();
  }, [isPaused, poll]);
  useEffect(() => onOpen(pollUnlessPaused), [pollUnlessPaused]);
  useInterval(pollUnlessPaused, POLL_MS);
  const clear = useCallback(() => setTail((before) => ({ ...before, lines: [], isCut: false })), []);
  return { ...tail, clear };
}
