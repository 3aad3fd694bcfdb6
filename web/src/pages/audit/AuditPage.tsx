import './Audit.css';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Card } from '../../components/Card';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { Button } from '../../components/Button';
import type { AuditFilter } from './audit';
import { AuditFilters } from './AuditFilters';
import { AuditTable } from './AuditTable';
import { SandboxCard } from './SandboxCard';
import { useAuditRows } from './useAuditRows';
import { VerifyCard } from './VerifyCard';

const EVERYTHING: AuditFilter = { kind: '', agentId: '', tool: '', days: 0 };

/** What was decided, approved, run and changed; rows are only ever added. */
export default function AuditPage(): JSX.Element {
  const [filter, setFilter] = useState(EVERYTHING);
  const { rows, error, isLoading, hasMore, reload, loadMore } = useAuditRows(filter);
  const isFiltered = Object.values(filter).some(Boolean);
  return (
    <Page
      title="Audit"
      aside={
        <Button small icon="retry" isBusy={isLoading} onClick={reload}>
          Refresh
        </Button>
      }
    >
      <div class="grid">
        <VerifyCard />
        <SandboxCard />
        <Card title="Log" class="full">
          <AuditFilters filter={filter} onChange={setFilter} />
          {error !== null && <ErrorState error={error} onRetry={reload} />}
          {isLoading && !rows && <Loading />}
          {rows && !rows.length && (
            <EmptyState icon="audit" title={isFiltered ? 'No row matches' : 'Nothing happened yet'}>
              {isFiltered ? 'Change the filters.' : 'Each tool call, approval and change of settings becomes a row.'}
            </EmptyState>
          )}
          {rows && rows.length > 0 && <AuditTable rows={rows} />}
          {hasMore && (
            <p class="audit-more">
              <Button isBusy={isLoading} onClick={loadMore}>
                Show earlier rows
              </Button>
            </p>
          )}
        </Card>
      </div>
    </Page>
  );
}
