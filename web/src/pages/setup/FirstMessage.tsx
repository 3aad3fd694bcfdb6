import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { navigate } from '../../app/router';
import { Button } from '../../components/Button';
import { Card } from '../../components/Card';
import { Field } from '../../components/Field';
import { randomId } from '../../gateway/device';
import { mainSessionKey } from '../../state/sessions';
import { enqueue } from '../chat/outbox';

/** The end of the setup: the first message to the assistant. */
export function FirstMessage(): JSX.Element {
  const [text, setText] = useState('Hello! What can you do for me?');
  const send = (event: Event): void => {
    event.preventDefault();
    const sessionKey = mainSessionKey();
    enqueue({ runId: randomId(), sessionKey, text: text.trim(), attachments: [] }); // the chat shows what becomes of it
    navigate('chat', { session: sessionKey });
  };
  return (
    <Card>
      <form class="stack" onSubmit={send}>
        <h2 class="setup-title">Your assistant is ready</h2>
        <Field label="Your first message">
          {(ids) => (
            <textarea class="input" rows={3} required {...ids} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          )}
        </Field>
        <div>
          <Button kind="primary" type="submit" disabled={!text.trim()}>
            Send message
          </Button>
        </div>
      </form>
    </Card>
  );
}
