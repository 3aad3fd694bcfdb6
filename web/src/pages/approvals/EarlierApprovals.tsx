import type { JSX } from 'preact';
import { askedBy, text } from '../../components/ApprovalCard';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Table, type Column } from '../../components/Table';
import type { Requested } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { EndedApproval, ResultOf } from '../../protocol/results';
import { formatDateTime, formatTime } from '../../state/format';

const WORDS: Readonly<Record<string, string>> = {
  'allow-once': 'allowed once',
  'allow-always': 'always allowed',
  deny: 'denied',
};

const COLUMNS: readonly Column<EndedApproval>[] = [
  {
    title: 'What',
    render: (row) => (
      <>
        <span class="mono">{subjectOf(row)}</span>
        <p class="tiny soft">{askedBy(row.request)}</p>
      </>
    ),
  },
  { title: 'Outcome', align: 'end', render: outcomeOf },
];

/** The approvals and questions that ended, newest first. */
export function EarlierApprovals({ request }: { request: Requested<ResultOf<'exec.approval.history'>> }): JSX.Element {
  const { data, error, reload } = request;
  return (
    <Card title="Earlier">
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {data && (
        <Table
          label="Earlier approvals"
          columns={COLUMNS}
          rows={data.approvals}
          getKey={(row) => row.id}
          isPlain
          empty={<p class="small soft">What you decide is listed here.</p>}
        />
      )}
    </Card>
  );
}

function subjectOf({ request }: EndedApproval): string {
  return oneLine(text(request.command) || text(request.title) || text(request.tool), 160);
}

function outcomeOf({ kind, state, decision, resolvedBy, resolvedAtMs, createdAtMs }: EndedApproval): string {
  const answered = kind === 'question' ? `answered “${oneLine(decision ?? '', 40)}”` : (WORDS[decision ?? ''] ?? state);
  const ended = state === 'expired' || state === 'cancelled' ? state : kind === 'question' && state === 'denied' ? 'dismissed' : answered;
  const atMs = resolvedAtMs ?? createdAtMs;
  const isToday = new Date(atMs).toDateString() === new Date().toDateString();
  const by = resolvedBy ? ` by ${oneLine(resolvedBy, 40)}` : '';
  return `${ended}${by} · ${isToday ? formatTime(atMs) : formatDateTime(atMs)}`;
}
