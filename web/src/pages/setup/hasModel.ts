const DEMO = 'local/';

/** Return whether a config names a model for any agent. */
export function hasModel(config: Readonly<Record<string, unknown>>): boolean {
  const agents = asObject(config.agents);
  const entries = [agents.defaults, ...(Array.isArray(agents.list) ? (agents.list as unknown[]) : [])];
  return entries.some((entry) => {
    const { model } = asObject(entry);
    return Boolean(typeof model === 'string' ? model : asObject(model).primary);
  });
}

/** Return whether the model that the gateway chose itself can answer; the demo of this program is no choice to stay with. */
export function isUsable({ model, problem }: { model: string; problem: unknown }): boolean {
  return Boolean(model) && !problem && !model.startsWith(DEMO);
}

function asObject(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}
