import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate } from '../../app/router';
import { Button } from '../../components/Button';
import { Confirm } from '../../components/Confirm';
import { Dialog } from '../../components/Dialog';
import { Field } from '../../components/Field';
import { Menu } from '../../components/Menu';
import { describeError } from '../../gateway/errors';
import { call, may } from '../../gateway/gateway';
import { downloadText } from '../../state/clipboard';
import { loadSessions, mainSessionKey } from '../../state/sessions';
import { showToast } from '../../state/toasts';
import type { Conversation } from './conversation';
import { fileNameOf, loadAll, toMarkdown } from './exportChat';

interface Props {
  conversation: Conversation;
  title: string;
}

/** What can be done with a conversation. */
export function ChatMenu({ conversation, title }: Props): JSX.Element {
  const [dialog, setDialog] = useState<'rename' | 'reset' | 'delete' | null>(null);
  const { key } = conversation;
  const close = (): void => setDialog(null);
  const isAdmin = may('admin');
  const save = (kind: 'md' | 'json'): void => {
    loadAll(key).then(
      (messages) => {
        const text = kind === 'md' ? toMarkdown(title, messages) : JSON.stringify({ key, messages }, null, 2);
        downloadText(fileNameOf(title, kind), text, kind === 'md' ? 'text/markdown' : 'application/json');
      },
      (error: unknown) => showToast({ tone: 'bad', text: describeError(error) }),
    );
  };
  return (
    <>
      <Menu
        label="Conversation"
        icon="more"
        items={[
          { label: 'Rename', icon: 'edit', disabled: !isAdmin, onSelect: () => setDialog('rename') },
          { label: 'Export as Markdown', icon: 'download', onSelect: () => save('md') },
          { label: 'Export as JSON', icon: 'download', onSelect: () => save('json') },
          { label: 'Start over', icon: 'retry', disabled: !isAdmin, onSelect: () => setDialog('reset') },
          { label: 'Delete', icon: 'trash', isDanger: true, disabled: !isAdmin || key === mainSessionKey(), onSelect: () => setDialog('delete') },
        ]}
      />
      {dialog === 'rename' && <Rename conversation={conversation} title={title} onClose={close} />}
      {dialog === 'reset' && (
        <Confirm title="Start over?" verb="Start over" onClose={close} onConfirm={() => call('sessions.reset', { key, reason: 'reset' }).then(() => conversation.load())}>
          <p>The agent forgets what was said here. The old transcript is archived, not deleted.</p>
        </Confirm>
      )}
      {dialog === 'delete' && (
        <Confirm
          title="Delete this conversation?"
          verb="Delete conversation"
          onClose={close}
          onConfirm={() => call('sessions.delete', { key }).then(() => {
            navigate('chat', {});
            return loadSessions();
          })}
        >
          <p>It disappears from the list. Its transcript is renamed in the state directory, not removed.</p>
        </Confirm>
      )}
    </>
  );
}

function Rename({ conversation, title, onClose }: Props & { onClose: () => void }): JSX.Element {
  const [label, setLabel] = useState(title);
  const [error, setError] = useState('');
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    call('sessions.patch', { key: conversation.key, label: label.trim() || null }).then(
      () => {
        onClose();
        void loadSessions();
      },
      (failure: unknown) => setError(describeError(failure)),
    );
  };
  return (
    <Dialog title="Rename the conversation" onClose={onClose}>
      <form class="stack" onSubmit={submit}>
        <Field label="Name" error={error}>
          {(ids) => <input {...ids} class="input" maxLength={64} value={label} onInput={(event) => setLabel(event.currentTarget.value)} />}
        </Field>
        <Button kind="primary" type="submit">
          Rename
        </Button>
      </form>
    </Dialog>
  );
}
