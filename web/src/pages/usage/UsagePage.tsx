import './Usage.css';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate, route } from '../../app/router';
import { Card } from '../../components/Card';
import { Chart } from '../../components/Chart';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { useRequest } from '../../gateway/useRequest';
import type { SessionsUsage } from '../../protocol/operation-results';
import { lastDays, pointsByDay } from '../../state/days';
import { formatCount, formatUsd } from '../../state/format';
import { BreakdownCard } from './BreakdownCard';
import { SessionUsage } from './SessionUsage';
import { SpendCard } from './SpendCard';
import { TotalsCards } from './TotalsCards';

const RANGES = [
  { days: 7, label: '7 days' },
  { days: 30, label: '30 days' },
  { days: 90, label: '90 days' },
  { days: 365, label: '1 year' },
];
const DEFAULT_DAYS = 30;
const MAX_SESSIONS = 200;

/** Tokens, cost and cache hits by day, model, agent and conversation. */
export default function UsagePage(): JSX.Element {
  const [days, setDays] = useState(DEFAULT_DAYS);
  const { data, error, isLoading, reload } = useRequest('sessions.usage', { days, limit: MAX_SESSIONS });
  const selected = route.value.query.session;
  return (
    <Page
      title="Usage"
      aside={
        <label class="row small">
          <span class="visually-hidden">Time range</span>
          <select
            class="input usage-range"
            value={String(days)}
            onChange={(event) => setDays(Number(event.currentTarget.value))}
          >
            {RANGES.map((each) => (
              <option key={each.days} value={String(each.days)}>
                {each.label}
              </option>
            ))}
          </select>
        </label>
      }
    >
      {error !== null && <ErrorState error={error} onRetry={reload} />}
      {isLoading && !data && <Loading />}
      {data &&
        (data.sessions.length ? (
          <Figures data={data} dates={lastDays(days, data.endDate)} />
        ) : (
          <div class="grid">
            <SpendCard />
            <div class="full">
              <EmptyState icon="chart" title="Nothing was used in this time">
                Tokens and cost appear here with the first answer of a model.
              </EmptyState>
            </div>
          </div>
        ))}
      {selected && <SessionUsage sessionKey={selected} onClose={() => navigate('usage')} />}
    </Page>
  );
}

function Figures({ data, dates }: { data: SessionsUsage; dates: readonly string[] }): JSX.Element {
  const { aggregates, totals } = data;
  return (
    <div class="grid">
      <TotalsCards totals={totals} />
      <Card title="Cost by day" aside={formatUsd(totals.totalCost)} class="wide">
        <Chart kind="bar" points={pointsByDay(dates, aggregates.daily, ({ cost }) => cost)} label="Cost by day" format={formatUsd} />
      </Card>
      <Card title="Tokens by day" aside={formatCount(totals.totalTokens)} class="wide">
        <Chart kind="bar" points={pointsByDay(dates, aggregates.daily, ({ tokens }) => tokens)} label="Tokens by day" format={formatCount} />
      </Card>
      <BreakdownCard data={data} />
      <SpendCard />
    </div>
  );
}
