import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import type { MethodName, MethodParams } from '../protocol/protocol.generated';
import type { ResultOf } from '../protocol/results';
import { call, onOpen } from './gateway';

export interface Requested<T> {
  /** The newest answer; it stays while a newer one is loaded. */
  data: T | null;
  error: unknown;
  isLoading: boolean;
  reload: () => void;
}

/**
 * Load the answer of a method, again after each reconnect and whenever the params change. With
 * `params` null nothing is requested.
 */
export function useRequest<M extends MethodName>(
  method: M,
  params: MethodParams[M] | null,
): Requested<ResultOf<M>> {
  const [data, setData] = useState<ResultOf<M> | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isLoading, setLoading] = useState(params !== null);
  const latest = useRef(0);
  const key = JSON.stringify(params);
  const reload = useCallback(() => {
    const wanted = JSON.parse(key) as MethodParams[M] | null;
    if (wanted === null) return;
    const turn = ++latest.current;
    setLoading(true);
    call(method, wanted).then(
      (answer) => {
        if (turn !== latest.current) return;
        setData(answer);
        setError(null);
        setLoading(false);
      },
      (failure: unknown) => {
        if (turn !== latest.current) return;
        setError(failure);
        setLoading(false);
      },
    );
  }, [method, key]);
  useEffect(() => onOpen(reload), [reload]);
  return { data, error, isLoading, reload };
}
