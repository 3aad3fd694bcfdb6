import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import { showToast } from '../../state/toasts';
import { patchConfig } from '../patchConfig';
import { addPatch, type Binding, type BindingMatch, changePatch, NO_MATCH, tierOf, TIERS } from './bindings';

interface Props {
  agentId: string;
  /** Null to add one. */
  binding: Binding | null;
  onClose: () => void;
  onSaved: () => void;
}

/** Add a binding of an agent, or change one. */
export function BindingForm({ agentId, binding, onClose, onSaved }: Props): JSX.Element {
  const status = useRequest('channels.status', {});
  const [match, setMatch] = useState<BindingMatch>(binding ?? NO_MATCH);
  const [roles, setRoles] = useState(binding?.roles.join(', ') ?? '');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const change = (part: Partial<BindingMatch>): void => setMatch((old) => ({ ...old, ...part }));
  const accounts = status.data?.channelAccounts[match.channel.trim().toLowerCase()] ?? [];
  const listed = { ...match, roles: roles.split(',').map((role) => role.trim()).filter(Boolean) };
  const save = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    patchConfig((parsed) => (binding ? changePatch(parsed, binding, listed) : addPatch(parsed, agentId, listed))).then(
      () => {
        showToast({ tone: 'ok', text: binding ? 'The binding is changed.' : 'The binding is added.' });
        onSaved();
        onClose();
      },
      (failure: unknown) => {
        setBusy(false);
        setError(failure);
      },
    );
  };
  const text = (label: string, key: 'channel' | 'account' | 'peer' | 'guild' | 'team', hint: string, options: readonly string[] = []): JSX.Element => (
    <Field label={label} hint={hint}>
      {(ids) => (
        <>
          <input
            class="input mono"
            autocomplete="off"
            spellcheck={false}
            required={key === 'channel'}
            list={options.length ? `${ids.id}-options` : undefined}
            {...ids}
            value={match[key]}
            onInput={(event) => change({ [key]: event.currentTarget.value })}
          />
          {options.length > 0 && (
            <datalist id={`${ids.id}-options`}>
              {options.map((option) => (
                <option key={option} value={option} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
  return (
    <Dialog title={`${binding ? 'Edit' : 'Add'} binding of ${oneLine(agentId, 40)}`} onClose={onClose}>
      <form class="stack" onSubmit={save}>
        {text('Channel', 'channel', 'A chat service, such as telegram.', status.data?.channelOrder ?? [])}
        {text('Account', 'account', 'Empty for the default account, * for every account.', [...accounts.map((one) => one.accountId), '*'])}
        <Field label="Kind of chat">
          {(ids) => (
            <select class="input" {...ids} value={match.kind} onChange={(event) => change({ kind: event.currentTarget.value })}>
              <option value="">Every chat</option>
              <option value="direct">Direct chat with a person</option>
              <option value="group">Group</option>
              <option value="channel">Channel</option>
            </select>
          )}
        </Field>
        {match.kind && text('Chat', 'peer', 'The id of the person, group or channel; empty for every chat of this kind.')}
        <details class="binding-more">
          <summary>Guild, team and roles</summary>
          <div class="stack">
            {text('Guild', 'guild', 'The id of a Discord server.')}
            {text('Team', 'team', 'The id of a team in Slack or Microsoft Teams.')}
            <Field label="Roles" hint="The sender must have one of these, separated by commas.">
              {(ids) => <input class="input mono" {...ids} value={roles} onInput={(event) => setRoles(event.currentTarget.value)} />}
            </Field>
          </div>
        </details>
        <p class="soft small" role="status">
          It names {TIERS[tierOf(listed)]}. More specific bindings win over it.
        </p>
        {status.error !== null && <ErrorState error={status.error} onRetry={status.reload} />}
        {error !== null && <ErrorState error={error} />}
        <div class="row agent-submit">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" isBusy={isBusy} disabled={!match.channel.trim()}>
            {binding ? 'Save binding' : 'Add binding'}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
