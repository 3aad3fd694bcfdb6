import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { call, onOpen } from '../../gateway/gateway';
import type { AuditRow } from '../../protocol/operation-results';
import type { AuditFilter } from './audit';

const PAGE_ROWS = 100;
const DAY_MS = 24 * 3_600_000;

interface AuditRows {
  rows: readonly AuditRow[] | null;
  error: unknown;
  isLoading: boolean;
  hasMore: boolean;
  reload: () => void;
  loadMore: () => void;
}

/** Load rows that match a filter, page by page. */
export function useAuditRows({ kind, agentId, tool, days }: AuditFilter): AuditRows {
  const [rows, setRows] = useState<readonly AuditRow[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isLoading, setLoading] = useState(true);
  const [next, setNext] = useState<number | null>(null);
  const latest = useRef(0);
  const load = useCallback(
    (beforeSeq: number | null) => {
      const turn = ++latest.current;
      setLoading(true);
      call('audit.list', {
        kind: kind || null,
        agentId: agentId.trim() || null,
        tool: tool.trim() || null,
        sinceMs: days ? Date.now() - days * DAY_MS : null,
        beforeSeq,
        limit: PAGE_ROWS,
      }).then(
        (answer) => {
          if (turn !== latest.current) return;
          setRows((before) => (beforeSeq === null ? answer.rows : [...(before ?? []), ...answer.rows]));
          setNext(answer.nextBeforeSeq);
          setError(null);
          setLoading(false);
        },
        (failure: unknown) => {
          if (turn !== latest.current) return;
          setError(failure);
          setLoading(false);
        },
      );
    },
    [kind, agentId, tool, days],
  );
  const reload = useCallback(() => load(null), [load]);
  useEffect(() => onOpen(reload), [reload]);
  return { rows, error, isLoading, hasMore: next !== null, reload, loadMore: () => load(next) };
}
