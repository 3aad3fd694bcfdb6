import './Overview.css';
import type { JSX } from 'preact';
import { useCallback, useEffect } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { useInterval } from '../../state/useInterval';
import { BacklogCard } from './BacklogCard';
import { ChannelsCard } from './ChannelsCard';
import { CostCards } from './CostCards';
import { HeadlineCards } from './HeadlineCards';
import { NextRunsCard } from './NextRunsCard';
import { findProblems } from './problems';
import { RunsCard } from './RunsCard';
import { SystemCard } from './SystemCard';

const REFRESH_MS = 10_000;
const DAYS = 14;

/** How the gateway is: what people look for first is on top. */
export default function OverviewPage(): JSX.Element {
  const health = useRequest('health', {});
  const status = useRequest('status', {});
  const channels = useRequest('channels.status', {});
  const backlog = useRequest('inbox.list', {});
  const cost = useRequest('usage.cost', { days: DAYS });
  const spend = useRequest('usage.status', {});
  const { reload: reloadHealth } = health;
  const { reload: reloadStatus } = status;
  const { reload: reloadChannels } = channels;
  const { reload: reloadBacklog } = backlog;
  const { reload: reloadCost } = cost;
  const { reload: reloadSpend } = spend;
  const refresh = useCallback(() => {
    for (const reload of [reloadHealth, reloadStatus, reloadChannels, reloadBacklog]) reload();
  }, [reloadHealth, reloadStatus, reloadChannels, reloadBacklog]);
  useInterval(refresh, REFRESH_MS);
  useEffect(
    () =>
      onEvent('chat', ({ state }) => {
        if (state === 'delta') return;
        for (const reload of [reloadStatus, reloadBacklog, reloadCost, reloadSpend]) reload();
      }),
    [reloadStatus, reloadBacklog, reloadCost, reloadSpend],
  );
  const error = [health, status].find((request) => request.error !== null && !request.data)?.error ?? null;
  const problems = findProblems(health.data, status.data, channels.data, backlog.data);
  return (
    <Page
      title="Overview"
      aside={
        health.data &&
        status.data && (
          <Badge tone={problems.length ? 'bad' : 'ok'} title={problems.join('\n')}>
            {problems.length ? describeCount(problems.length) : 'All systems working'}
          </Badge>
        )
      }
    >
      {error !== null && <ErrorState error={error} onRetry={refresh} />}
      {error === null && !status.data && <Loading />}
      {status.data && (
        <div class="grid overview">
          <HeadlineCards status={status.data} cost={cost.data} spend={spend.data?.spend ?? null} backlog={backlog.data} />
          {problems.length > 0 && (
            <ul class="overview-problems full" aria-label="Problems">
              {problems.map((problem) => (
                <li key={problem}>{problem}</li>
              ))}
            </ul>
          )}
          <ChannelsCard {...channels} />
          <BacklogCard {...backlog} />
          <CostCards request={cost} days={DAYS} />
          <NextRunsCard />
          <RunsCard lanes={status.data.lanes} />
          <SystemCard status={status.data} health={health.data} />
        </div>
      )}
    </Page>
  );
}

function describeCount(count: number): string {
  return count === 1 ? '1 problem' : `${count} problems`;
}
