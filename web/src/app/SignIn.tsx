import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../components/Button';
import { Field } from '../components/Field';
import { dropRefusedToken, setToken } from '../gateway/credentials';
import type { RequestError } from '../gateway/errors';
import { connect } from '../gateway/gateway';
import { escapeInvisible } from '../markdown/text';

/** Asks for the token of the gateway, which is kept for this tab only. */
export function SignIn({ error }: { error: RequestError }): JSX.Element {
  const [hadToken] = useState(dropRefusedToken);
  const [token, setValue] = useState('');
  const submit = (event: SubmitEvent): void => {
    event.preventDefault();
    if (!token.trim()) return;
    setToken(token);
    connect();
  };
  return (
    <div class="gate">
      <form class="gate-card" autocomplete="on" onSubmit={submit}>
        <h1 id="page-title" tabIndex={-1}>
          Sign in
        </h1>
        <p role="alert">{hadToken ? explain(error) : 'This gateway asks who you are.'}</p>
        <Field label="Gateway token or password">
          {(ids) => (
            <input
              {...ids}
              class="input"
              type="password"
              autocomplete="current-password"
              spellcheck={false}
              required
              autofocus
              value={token}
              onInput={(event) => setValue(event.currentTarget.value)}
            />
          )}
        </Field>
        <Button kind="primary" type="submit">
          Connect
        </Button>
        <p class="tiny soft">
          On the gateway’s machine, <code>homarus dashboard</code> prints a link that signs in. The token is kept for
          this tab only and sent to this gateway only.
        </p>
      </form>
    </div>
  );
}

function explain(error: RequestError): string {
  return error.message.includes('mismatch')
    ? 'This token is not right. “homarus dashboard” on the gateway’s machine prints the link with the right one.'
    : escapeInvisible(error.message);
}
