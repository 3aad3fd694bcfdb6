import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Link } from '../../app/Link';
import { navigate } from '../../app/router';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Confirm } from '../../components/Confirm';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { KeyValues } from '../../components/KeyValues';
import { call, may } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import type { AgentRow } from '../../protocol/agent-results';
import { showToast } from '../../state/toasts';

interface Props {
  agent: AgentRow;
  isDefault: boolean;
  onChanged: () => void;
}

/** Who an agent is: its name, its model and its folder. */
export function Identity({ agent, isDefault, onChanged }: Props): JSX.Element {
  const files = useRequest('agents.files.list', may('admin') ? { agentId: agent.id } : null);
  const [isRemoving, setRemoving] = useState(false);
  return (
    <div class="grid">
      <Card title="Identity" class="wide">
        <KeyValues
          rows={[
            ['Id', oneLine(agent.id, 80)],
            ['Name', oneLine(agent.identity?.name ?? agent.name ?? '', 80)],
            ['Theme', oneLine(agent.identity?.theme ?? '', 200)],
            ['Emoji', agent.identity?.emoji ?? ''],
            ['Model', oneLine(agent.model?.primary ?? 'none can be used', 120)],
            ['Workspace', oneLine(files.data?.workspace ?? '', 400)],
          ]}
        />
        <p class="soft small agent-gap">
          The texts that make it who it is are its <Link to="agents" query={{ id: agent.id, tab: 'files' }}>files</Link>.
        </p>
        {files.error !== null && <ErrorState error={files.error} onRetry={files.reload} />}
      </Card>
      {may('admin') && (
        <Card title="Change" class="wide">
          <IdentityForm agent={agent} onChanged={onChanged} />
          {!isDefault && (
            <Button kind="danger" icon="trash" onClick={() => setRemoving(true)}>
              Delete agent
            </Button>
          )}
        </Card>
      )}
      {isRemoving && (
        <Confirm
          title="Delete agent"
          verb="Delete agent"
          onClose={() => setRemoving(false)}
          onConfirm={async () => {
            await call('agents.delete', { agentId: agent.id });
            showToast({ tone: 'ok', text: `${agent.id} is deleted.` });
            onChanged();
            navigate('agents');
          }}
        >
          <p>
            Its conversations are archived and its files are moved to <code class="mono">trash</code> in the state
            directory. Its bindings are removed.
          </p>
        </Confirm>
      )}
    </div>
  );
}

function IdentityForm({ agent, onChanged }: Omit<Props, 'isDefault'>): JSX.Element {
  const models = useRequest('models.list', {});
  const [name, setName] = useState(agent.identity?.name ?? agent.name ?? '');
  const [model, setModel] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const save = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    const changes = { ...(name.trim() ? { name: name.trim() } : {}), ...(model ? { model } : {}) };
    call('agents.update', { agentId: agent.id, ...changes })
      .then(() => {
        showToast({ tone: 'ok', text: 'The agent is changed.' });
        onChanged();
      }, setError)
      .finally(() => setBusy(false));
  };
  return (
    <form class="stack agent-form" onSubmit={save}>
      <Field label="Name">
        {(ids) => (
          <input class="input" maxLength={100} {...ids} value={name} onInput={(event) => setName(event.currentTarget.value)} />
        )}
      </Field>
      <Field label="Model">
        {(ids) => (
          <select class="input" {...ids} value={model} onChange={(event) => setModel(event.currentTarget.value)}>
            <option value="">{agent.model ? `As now: ${oneLine(agent.model.primary, 80)}` : 'As now'}</option>
            {models.data?.models.map((one) => (
              <option key={`${one.provider}/${one.id}`} value={`${one.provider}/${one.id}`}>
                {oneLine(`${one.name} (${one.provider})`, 80)}
              </option>
            ))}
          </select>
        )}
      </Field>
      {error !== null && <ErrorState error={error} />}
      <div>
        <Button kind="primary" type="submit" isBusy={isBusy}>
          Save changes
        </Button>
      </div>
    </form>
  );
}
