/** Rows of the usage table, by what they are grouped. Pure. */

import type { SessionsUsage, UsageTotals } from '../../protocol/operation-results';

export type Grouping = 'session' | 'model' | 'agent' | 'day';

export interface UsageRow {
  key: string;
  name: string;
  /** Of a row that opens: the key of its conversation. */
  sessionKey?: string;
  cost: number;
  tokens: number;
  messages?: number;
  /** Unknown where the gateway tells sums alone. */
  cacheShare: number | null;
}

/** Return the part of the prompt that was read from a cache, null without a prompt. */
export function cacheShare({ input, cacheRead, cacheWrite }: UsageTotals): number | null {
  const prompt = input + cacheRead + cacheWrite;
  return prompt ? cacheRead / prompt : null;
}

export function formatShare(share: number | null): string {
  return share === null ? '–' : `${Math.round(share * 100)} %`;
}

/** Return the rows of a grouping: days newest first, the others by cost, then by tokens. */
export function usageRows(data: SessionsUsage, grouping: Grouping): UsageRow[] {
  const { aggregates, sessions } = data;
  if (grouping === 'day')
    return aggregates.daily
      .filter(({ tokens, messages }) => tokens || messages)
      .map(({ date, cost, tokens, messages }) => ({ key: date, name: date, cost, tokens, messages, cacheShare: null }))
      .reverse();
  const rows: UsageRow[] =
    grouping === 'model'
      ? aggregates.byModel.map((row) => ({
          key: `${row.provider}/${row.model}`,
          name: `${row.provider}/${row.model}`,
          messages: row.count,
          ...figures(row.totals),
        }))
      : grouping === 'agent'
        ? aggregates.byAgent.map((row) => ({ key: row.agentId, name: row.agentId, ...figures(row.totals) }))
        : sessions.map((row) => ({
            key: row.key,
            name: row.label ?? row.key,
            sessionKey: row.key,
            messages: row.usage.messageCounts.total,
            ...figures(row.usage),
          }));
  return rows.sort((one, other) => other.cost - one.cost || other.tokens - one.tokens);
}

function figures(totals: UsageTotals): Pick<UsageRow, 'cost' | 'tokens' | 'cacheShare'> {
  return { cost: totals.totalCost, tokens: totals.totalTokens, cacheShare: cacheShare(totals) };
}
