import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { KeyValues } from '../../components/KeyValues';
import { Loading } from '../../components/Loading';
import { call, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { formatCount } from '../../state/format';
import { showToast } from '../../state/toasts';

const INDEX_TIMEOUT_MS = 600_000;

/** What is indexed, by what, and whether it is up to date. */
export function IndexStatus({ agentId, searches }: { agentId: string; searches: number }): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('memory.status', { agentId });
  useEffect(() => {
    if (searches) reload();
  }, [searches, reload]);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const index = (): void => {
    setBusy(true);
    setFailure(null);
    call('memory.index', { agentId }, INDEX_TIMEOUT_MS)
      .then((report) => {
        const count = report.indexed.length;
        showToast({ tone: 'ok', text: count ? `${count} files were indexed.` : 'The index was up to date.' });
        reload();
      }, setFailure)
      .finally(() => setBusy(false));
  };
  return (
    <Card
      title="Index"
      aside={data && <Badge tone={data.problem ? 'bad' : data.dirty ? 'warn' : 'ok'}>{data.problem ? 'problem' : data.dirty ? 'out of date' : 'up to date'}</Badge>}
    >
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {data && (
        <div class="stack">
          <KeyValues
            rows={[
              ['Files', formatCount(data.files ?? 0)],
              ['Lines', formatCount(data.lines ?? 0)],
              ['Vectors', data.vectors ? formatCount(data.vectors) : 'none'],
              ['Backend', oneLine(data.backend ?? '', 60)],
              ['Embeddings', oneLine([data.provider === 'none' ? 'none, words only' : data.provider, data.model].filter(Boolean).join(' · '), 120)],
            ]}
          />
          {data.problem && <p class="field-error">{escapeInvisible(data.problem)}</p>}
          {data.fallback && (
            <p class="soft small">
              {oneLine(data.fallback.from, 60)} is not used: {escapeInvisible(data.fallback.reason)}
            </p>
          )}
          {failure !== null && <ErrorState error={failure} />}
          {may('admin') && (
            <div>
              <Button small icon="retry" isBusy={isBusy} onClick={index}>
                Update index
              </Button>
            </div>
          )}
        </div>
      )}
    </Card>
  );
}
