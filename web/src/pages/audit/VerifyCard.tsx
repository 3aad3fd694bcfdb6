import type { JSX } from 'preact';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { CopyButton } from '../../components/CopyButton';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import { formatTime } from '../../state/format';

/** Whether a row was changed, removed or moved. */
export function VerifyCard(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('audit.verify', {});
  return (
    <Card
      title="Integrity"
      class="wide"
      aside={
        <Button small kind="quiet" isBusy={isLoading} onClick={reload}>
          Verify again
        </Button>
      }
    >
      {error !== null && !data && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading label="Verifying" />}
      {data && (
        <div class="audit-card small">
          <p>
            <Badge tone={data.ok ? 'ok' : 'bad'}>{data.ok ? 'No row was changed' : 'The log was changed'}</Badge>{' '}
            <span class="soft">
              {data.seq} rows, verified at {formatTime(data.checkedAtMs)}
            </span>
          </p>
          {data.problem && <p role="alert">{oneLine(data.problem, 300)}</p>}
          {data.ok && data.seq > 0 && (
            <p class="soft tiny">
              Write the last row down elsewhere to detect a log that was replaced:{' '}
              <CopyButton label="Copy number and hash" getText={() => `${data.seq}:${data.hash}`} />
            </p>
          )}
        </div>
      )}
    </Card>
  );
}
