import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Button } from '../../components/Button';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Page } from '../../components/Page';
import { PendingItem } from '../../components/PendingItem';
import { ScopeRequest } from '../../components/ScopeRequest';
import { hello, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { isPendingLoaded, loadPending, pending, pendingError, resolvedCount } from '../../state/approvals';
import { permission, requestNotifications } from '../../state/notifications';
import { EarlierApprovals } from './EarlierApprovals';

/** What waits for the person, and what was decided. */
export default function ApprovalsPage(): JSX.Element {
  const waiting = pending.value;
  const earlier = useRequest('exec.approval.history', { limit: 50 });
  const { reload } = earlier;
  const count = resolvedCount.value;
  useEffect(() => {
    if (count) reload();
  }, [count, reload]);
  const isBarred = hello.value !== null && !may('approvals');
  const aside = (
    <>
      {permission.value === 'default' && (
        <Button kind="quiet" small icon="bell" onClick={() => void requestNotifications()}>
          Notify me
        </Button>
      )}
      {waiting.length > 0 && <Badge tone="warn">{waiting.length} waiting</Badge>}
    </>
  );
  return (
    <Page title="Approvals" aside={aside}>
      <div class="stack column">
        {waiting.map((item) => (
          <PendingItem key={item.id} item={item} />
        ))}
        {pendingError.value !== null && <ErrorState error={pendingError.value} onRetry={() => void loadPending()} />}
        {isBarred && <ScopeRequest scope="operator.approvals" />}
        {!waiting.length && isPendingLoaded.value && !isBarred && (
          <EmptyState icon="shield" title="Nothing waits for you">
            When an agent wants to do something that needs your approval, or asks you a question, it appears here.
          </EmptyState>
        )}
        {!isBarred && <EarlierApprovals request={earlier} />}
      </div>
    </Page>
  );
}
