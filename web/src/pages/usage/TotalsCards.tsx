import type { JSX } from 'preact';
import { Card } from '../../components/Card';
import { Figure } from '../../components/Figure';
import type { UsageTotals } from '../../protocol/operation-results';
import { formatCount, formatUsd } from '../../state/format';
import { cacheShare, formatShare } from './rows';

/** The sums of the time range. */
export function TotalsCards({ totals }: { totals: UsageTotals }): JSX.Element {
  const unpriced = totals.missingCostEntries;
  return (
    <>
      <Card title="Cost">
        <Figure value={formatUsd(totals.totalCost)} unit={unpriced ? `${formatCount(unpriced)} without a price` : undefined} />
      </Card>
      <Card title="Tokens">
        <Figure value={formatCount(totals.totalTokens)} />
      </Card>
      <Card title="Prompt and answer">
        <Figure
          value={formatCount(totals.input + totals.cacheRead + totals.cacheWrite)}
          unit={`and ${formatCount(totals.output)}`}
        />
      </Card>
      <Card title="Cache hits">
        <Figure value={formatShare(cacheShare(totals))} unit="of the prompt" />
      </Card>
    </>
  );
}
