/** What needs a person, in a sentence each. Pure. */

import { oneLine } from '../../markdown/text';
import type { BacklogRow, ChannelAccount, ChannelsStatus, GatewayStatus } from '../../protocol/operation-results';

interface Health {
  ok: boolean;
  disk?: { ok: boolean; problem?: string };
}

interface Backlog {
  messages: BacklogRow[];
  parcels: BacklogRow[];
}

const STUCK = new Set(['parked', 'unknown', 'dead']);

/** Whether a record does not move without a person. */
export function isStuck({ state }: BacklogRow): boolean {
  return STUCK.has(state);
}

export function isFailing(account: ChannelAccount): boolean {
  return account.enabled !== false && Boolean(account.lastError) && !account.connected;
}

/** Return what is wrong, the most important first. */
export function findProblems(
  health: Health | null,
  status: GatewayStatus | null,
  channels: ChannelsStatus | null,
  backlog: Backlog | null,
): string[] {
  const problems = [...findSystemProblems(health, status), ...(channels ? findChannelProblems(channels) : [])];
  const stuck = [...(backlog?.messages ?? []), ...(backlog?.parcels ?? [])].filter(isStuck).length;
  if (stuck === 1) problems.push('1 message needs a decision of yours.');
  else if (stuck) problems.push(`${stuck} messages need a decision of yours.`);
  return problems;
}

function findSystemProblems(health: Health | null, status: GatewayStatus | null): string[] {
  const problems: string[] = [];
  if (health?.disk?.ok === false)
    problems.push(`The disk cannot be written: ${oneLine(health.disk.problem ?? 'unknown reason')}`);
  else if (health?.ok === false) problems.push('The gateway was blocked in the last minute; replies may be late.');
  if (status?.configProblem) problems.push(`The config file is not in use: ${oneLine(status.configProblem, 300)}`);
  for (const { agentId, problem, fix } of status?.sandboxes ?? [])
    if (problem) problems.push(`Sandbox of ${oneLine(agentId, 60)}: ${oneLine(fix ? `${problem}; ${fix}` : problem)}`);
  return problems;
}

function findChannelProblems({ channelOrder, channelLabels, channelAccounts }: ChannelsStatus): string[] {
  return channelOrder.flatMap((channel) =>
    (channelAccounts[channel] ?? [])
      .filter(isFailing)
      .map((each) => `${channelLabels[channel] ?? channel} · ${each.accountId}: ${oneLine(each.lastError ?? '')}`),
  );
}
