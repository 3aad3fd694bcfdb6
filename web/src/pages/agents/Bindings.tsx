import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Confirm } from '../../components/Confirm';
import { EmptyState } from '../../components/EmptyState';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Table } from '../../components/Table';
import { may, onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import { showToast } from '../../state/toasts';
import { patchConfig } from '../patchConfig';
import { BindingForm } from './BindingForm';
import { BindingOrder } from './BindingOrder';
import { type Binding, changePatch, describeChat, findEarlier, readBindings } from './bindings';

/** Which chats reach an agent, and which of several bindings wins. */
export function Bindings({ agentId, isDefault }: { agentId: string; isDefault: boolean }): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('config.get', {});
  const [edited, setEdited] = useState<Binding | 'new' | null>(null);
  const [removed, setRemoved] = useState<Binding | null>(null);
  useEffect(() => onEvent('config.reloaded', reload), [reload]);
  const all = data ? readBindings(data.parsed) : [];
  const own = all.filter((binding) => binding.agentId.trim().toLowerCase() === agentId);
  const canEdit = may('admin');
  return (
    <div class="stack">
      <Card
        title="Bindings"
        aside={
          canEdit && (
            <Button small icon="plus" onClick={() => setEdited('new')}>
              Add binding
            </Button>
          )
        }
      >
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading />}
        {data && (
          <Table<Binding>
            label="Bindings"
            rows={own}
            getKey={(binding) => String(binding.index)}
            columns={[
              { title: 'Channel', render: (binding) => <span class="mono">{oneLine(binding.channel, 60)}</span> },
              { title: 'Account', render: (binding) => oneLine(binding.account === '*' ? 'every' : binding.account || 'default', 60) },
              { title: 'Chat', render: (binding) => <Chat binding={binding} all={all} /> },
              {
                title: canEdit ? 'Actions' : '',
                align: 'end',
                render: (binding) =>
                  canEdit && (
                    <span class="row binding-actions">
                      <Button small kind="quiet" icon="edit" label={`Edit ${nameOf(binding)}`} onClick={() => setEdited(binding)} />
                      <Button small kind="quiet" icon="trash" label={`Remove ${nameOf(binding)}`} onClick={() => setRemoved(binding)} />
                    </span>
                  ),
              },
            ]}
            empty={
              <EmptyState icon="plug" title="No bindings">
                {isDefault
                  ? 'It is the default agent: it answers every chat that is bound to no other agent.'
                  : 'No chat reaches this agent. Add a binding, and it answers the chats that the binding names.'}
              </EmptyState>
            }
          />
        )}
        {isDefault && own.length > 0 && (
          <p class="soft small agent-gap">It is the default agent: it also answers chats that are bound to no other agent.</p>
        )}
      </Card>
      {data && <BindingOrder bindings={all} agentId={agentId} />}
      {edited !== null && (
        <BindingForm agentId={agentId} binding={edited === 'new' ? null : edited} onClose={() => setEdited(null)} onSaved={reload} />
      )}
      {removed && (
        <Confirm
          title="Remove binding"
          verb="Remove binding"
          onClose={() => setRemoved(null)}
          onConfirm={async () => {
            await patchConfig((parsed) => changePatch(parsed, removed, null));
            showToast({ tone: 'ok', text: 'The binding is removed.' });
            reload();
          }}
        >
          <p>
            <span class="mono">{nameOf(removed)}</span> no longer reaches this agent: the next binding that fits decides, else
            the default agent answers.
          </p>
        </Confirm>
      )}
    </div>
  );
}

function Chat({ binding, all }: { binding: Binding; all: readonly Binding[] }): JSX.Element {
  const earlier = findEarlier(all, binding);
  return (
    <>
      <span class="mono">{oneLine(describeChat(binding) || 'every chat', 120)}</span>
      {earlier && <span class="field-error binding-note">Without effect: it is bound to {oneLine(earlier.agentId, 40)} before.</span>}
    </>
  );
}

function nameOf(binding: Binding): string {
  return oneLine([binding.channel, binding.account, describeChat(binding)].filter(Boolean).join(' '), 120);
}
