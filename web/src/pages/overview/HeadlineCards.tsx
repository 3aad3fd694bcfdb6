import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Card } from '../../components/Card';
import { Figure } from '../../components/Figure';
import { Meter } from '../../components/Meter';
import type { GatewayStatus, SpendStatus } from '../../protocol/operation-results';
import type { MethodResults } from '../../protocol/results';
import { countPending } from '../../state/approvals';
import { formatUsd } from '../../state/format';
import { isStuck } from './problems';

interface Props {
  status: GatewayStatus;
  cost: MethodResults['usage.cost'] | null;
  spend: SpendStatus | null;
  backlog: MethodResults['inbox.list'] | null;
}

/** The four numbers that people look for first. */
export function HeadlineCards({ status, cost, spend, backlog }: Props): JSX.Element {
  const lanes = Object.values(status.lanes);
  const active = lanes.reduce((sum, lane) => sum + lane.active, 0);
  const waiting = lanes.reduce((sum, lane) => sum + lane.waiting, 0);
  const today = cost?.daily.find(({ date }) => date === cost.endDate)?.totalCost ?? 0;
  const used = Math.max(today, spend?.usedUsd ?? 0);
  const limit = spend?.perDayUsd ?? null;
  const stuck = [...(backlog?.messages ?? []), ...(backlog?.parcels ?? [])].filter(isStuck).length;
  const pending = countPending();
  return (
    <>
      <Card title="Runs now">
        <Figure value={active} unit={waiting ? `${waiting} waiting` : 'none waiting'} />
      </Card>
      <Card title="Waiting for you">
        <Figure value={pending} unit={pending ? <Link to="approvals">Decide</Link> : 'nothing to decide'} />
      </Card>
      <Card
        title="Today"
        aside={limit !== null && <Meter value={limit ? used / limit : 1} label="Part of today’s spend limit that is used" />}
      >
        <Figure value={formatUsd(used)} unit={limit === null ? 'no limit' : `of ${formatUsd(limit)}`} />
      </Card>
      <Card title="Stuck">
        <Figure value={backlog ? stuck : '–'} unit={stuck === 1 ? 'message' : 'messages'} />
      </Card>
    </>
  );
}
