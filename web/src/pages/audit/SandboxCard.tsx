import type { JSX } from 'preact';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table, type Column } from '../../components/Table';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { Sandbox } from '../../protocol/operation-results';

const COLUMNS: readonly Column<Sandbox>[] = [
  { title: 'Agent', render: ({ agentId }) => <span class="mono">{oneLine(agentId, 60)}</span> },
  {
    title: 'Level',
    render: ({ mode, level, demanded }) =>
      mode === 'off' ? (
        <Badge tone="warn">off</Badge>
      ) : (
        <Badge tone={level ? 'ok' : 'neutral'} title={demanded ? `${demanded} is demanded` : ''}>
          {level ?? 'not measured yet'}
        </Badge>
      ),
  },
  {
    title: 'How',
    render: ({ mode, backend, scope, workspaceAccess, problem, fix }) =>
      mode === 'off'
        ? 'Commands run on this machine; approvals decide about each.'
        : [
            `${backend ?? ''}, mode ${mode}, one per ${scope ?? 'session'}, workspace ${workspaceAccess ?? 'none'}`,
            problem && oneLine(problem),
            fix && oneLine(fix),
          ]
            .filter(Boolean)
            .join('. '),
  },
];

/** The sandbox that each agent's commands run in. */
export function SandboxCard(): JSX.Element {
  const { data, error, reload } = useRequest('status', {});
  return (
    <Card title="Sandboxes" class="wide">
      {error !== null && !data && <ErrorState error={error} onRetry={reload} />}
      {!data && error === null && <Loading />}
      {data && <Table label="Sandboxes" columns={COLUMNS} rows={data.sandboxes} getKey={({ agentId }) => agentId} />}
    </Card>
  );
}
