import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Card } from '../../components/Card';
import { Chart } from '../../components/Chart';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import type { Requested } from '../../gateway/useRequest';
import type { MethodResults } from '../../protocol/results';
import { lastDays, pointsByDay } from '../../state/days';
import { formatCount, formatUsd } from '../../state/format';

interface Props {
  request: Requested<MethodResults['usage.cost']>;
  days: number;
}

/** Cost and tokens of the last days. */
export function CostCards({ request, days }: Props): JSX.Element {
  const { data, error, reload } = request;
  if (!data)
    return (
      <Card title="Cost" class="wide">
        {error === null ? <Loading /> : <ErrorState error={error} onRetry={reload} />}
      </Card>
    );
  const dates = lastDays(days, data.endDate);
  const costs = pointsByDay(dates, data.daily, (row) => row.totalCost);
  const tokens = pointsByDay(dates, data.daily, (row) => row.totalTokens);
  return (
    <>
      <Card
        title={`Cost, last ${days} days`}
        aside={<Link to="usage">{formatUsd(data.totals.totalCost)}</Link>}
        class="wide"
      >
        <Chart kind="bar" points={costs} label="Cost by day" format={formatUsd} />
      </Card>
      <Card
        title={`Tokens, last ${days} days`}
        aside={<Link to="usage">{formatCount(data.totals.totalTokens)}</Link>}
        class="wide"
      >
        <Chart kind="bar" points={tokens} label="Tokens by day" format={formatCount} />
      </Card>
    </>
  );
}
