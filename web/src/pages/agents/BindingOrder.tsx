import type { JSX } from 'preact';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { Table } from '../../components/Table';
import { oneLine } from '../../markdown/text';
import { type Binding, describeChat, sortBindings, tierOf, TIERS } from './bindings';

const MAX_SHOWN = 50;

/** All bindings in the order in which they are tried: it explains which of several wins. */
export function BindingOrder({ bindings, agentId }: { bindings: readonly Binding[]; agentId: string }): JSX.Element {
  const sorted = sortBindings(bindings);
  return (
    <Card title="Which binding wins">
      <p class="soft small binding-rule">
        The most specific binding that fits a message decides, whatever its place in the config; of two that are equally
        specific, the first. From specific to general: {TIERS.join(' → ')} → the default agent.
      </p>
      {sorted.length > 0 && (
        <Table<Binding>
          label="Bindings of all agents, in the order in which they are tried"
          rows={sorted.slice(0, MAX_SHOWN)}
          getKey={(binding) => String(binding.index)}
          columns={[
            { title: 'Specific to', render: (binding) => TIERS[tierOf(binding)] },
            {
              title: 'Binding',
              render: (binding) => (
                <span class="mono">
                  {oneLine([binding.channel, binding.account && `(${binding.account})`, describeChat(binding)].filter(Boolean).join(' '), 120)}
                </span>
              ),
            },
            {
              title: 'Agent',
              align: 'end',
              render: (binding) =>
                binding.agentId.trim().toLowerCase() === agentId ? <Badge tone="accent">{oneLine(binding.agentId, 40)}</Badge> : oneLine(binding.agentId, 40),
            },
          ]}
        />
      )}
      {sorted.length > MAX_SHOWN && <p class="soft small">{sorted.length - MAX_SHOWN} more.</p>}
    </Card>
  );
}
