import type { AgentRow } from '../../protocol/agent-results';

/** Return the id of an agent's model without its provider; '' where it is not known. */
export function primaryModel(agents: readonly AgentRow[], agentId: string): string {
  const primary = agents.find(({ id }) => id === agentId)?.model?.primary ?? '';
  return primary.slice(primary.indexOf('/') + 1);
}
