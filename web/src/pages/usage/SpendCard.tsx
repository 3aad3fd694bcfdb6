import type { JSX } from 'preact';
import { Link } from '../../app/Link';
import { Card } from '../../components/Card';
import { KeyValues } from '../../components/KeyValues';
import { Meter } from '../../components/Meter';
import { useRequest } from '../../gateway/useRequest';
import { formatUsd } from '../../state/format';

/** The limits of what models may cost. */
export function SpendCard(): JSX.Element {
  const { data } = useRequest('usage.status', {});
  const spend = data?.spend;
  const show = (usd: number | null | undefined): string => (usd === null || usd === undefined ? 'none' : formatUsd(usd));
  return (
    <Card
      title="Spend limits"
      class="full"
      aside={<Link to="config" query={{ find: 'agents.defaults.spend' }}>Change</Link>}
    >
      {spend && (
        <KeyValues
          rows={[
            ['For one run', show(spend.perRunUsd)],
            ['For a day', show(spend.perDayUsd)],
            [
              'Used today',
              spend.perDayUsd !== null && spend.usedUsd !== null && (
                <span class="row">
                  {formatUsd(spend.usedUsd)}
                  <Meter
                    value={spend.perDayUsd ? spend.usedUsd / spend.perDayUsd : 1}
                    label="Part of today’s spend limit that is used"
                  />
                </span>
              ),
            ],
          ]}
        />
      )}
      {spend?.perDayUsd === null && spend.perRunUsd === null && (
        <p class="soft small">
          Runs may cost any amount. Set <span class="mono">agents.defaults.spend.perDayUsd</span> to stop at a sum.
        </p>
      )}
    </Card>
  );
}
