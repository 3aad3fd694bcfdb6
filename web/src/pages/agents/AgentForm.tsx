import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate } from '../../app/router';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { call, hello } from '../../gateway/gateway';
import { showToast } from '../../state/toasts';

/** Add an agent with a workspace of its own. */
export function AgentForm({ onClose, onSaved }: { onClose: () => void; onSaved: () => void }): JSX.Element {
  const [name, setName] = useState('');
  const [folder, setFolder] = useState('');
  const [emoji, setEmoji] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const proposed = `${hello.value?.snapshot.stateDir ?? '~/.openclaw'}/workspace-${name.trim().toLowerCase().replace(/[^a-z0-9]+/g, '-') || 'name'}`;
  const save = (event: Event): void => {
    event.preventDefault();
    setBusy(true);
    const workspace = folder.trim() || proposed;
    call('agents.create', { name: name.trim(), workspace, ...(emoji.trim() ? { emoji: emoji.trim() } : {}) }).then(
      (made) => {
        showToast({ tone: 'ok', text: `${made.name} is added.` });
        onSaved();
        onClose();
        navigate('agents', { id: made.agentId });
      },
      (failure: unknown) => {
        setBusy(false);
        setError(failure);
      },
    );
  };
  return (
    <Dialog title="Add agent" onClose={onClose}>
      <form class="stack" onSubmit={save}>
        <Field label="Name">
          {(ids) => (
            <input class="input" required maxLength={100} {...ids} value={name} onInput={(event) => setName(event.currentTarget.value)} />
          )}
        </Field>
        <Field label="Folder of its files" hint="In the state directory, with a name that starts with workspace. It is made if it does not exist.">
          {(ids) => (
            <input
              class="input mono"
              placeholder={proposed}
              {...ids}
              value={folder}
              onInput={(event) => setFolder(event.currentTarget.value)}
            />
          )}
        </Field>
        <Field label="Emoji" hint="Optional">
          {(ids) => (
            <input class="input" maxLength={16} {...ids} value={emoji} onInput={(event) => setEmoji(event.currentTarget.value)} />
          )}
        </Field>
        {error !== null && <ErrorState error={error} />}
        <div class="row agent-submit">
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="primary" type="submit" isBusy={isBusy} disabled={!name.trim()}>
            Add agent
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
