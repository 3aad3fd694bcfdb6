import './Gate.css';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../components/Button';
import { CodeBlock } from '../components/CodeBlock';
import { dropRequestedScopes, hasRequestedMore } from '../gateway/credentials';
import { NoDeviceKeyError, type RequestError } from '../gateway/errors';
import { connect } from '../gateway/gateway';
import { escapeInvisible } from '../markdown/text';
import { SignIn } from './SignIn';

const PAIRING_RETRY_MS = 3_000;

/** Shown instead of a page when the gateway refused the connection: why, and what to do. */
export function Gate({ error }: { error: RequestError }): JSX.Element {
  const requestId = error.details.requestId;
  if (error instanceof NoDeviceKeyError) return error.isInsecure ? <Insecure /> : <OldBrowser />;
  if (error.code === 'NOT_PAIRED' && typeof requestId === 'string') return <PairingWait requestId={requestId} />;
  if (error.message.startsWith('unauthorized')) return <SignIn error={error} />;
  return <Refused error={error} />;
}

function Panel({ title, children }: { title: string; children: ComponentChildren }): JSX.Element {
  return (
    <div class="gate">
      <section class="gate-card" role="alert">
        <h1 id="page-title" tabIndex={-1}>
          {title}
        </h1>
        {children}
      </section>
    </div>
  );
}

function OldBrowser(): JSX.Element {
  return (
    <Panel title="This browser is too old">
      <p>
        It cannot make the key (Ed25519) by which the gateway recognises it. Use a current Chrome, Edge, Firefox or
        Safari.
      </p>
    </Panel>
  );
}

function Insecure(): JSX.Element {
  return (
    <Panel title="This page needs https">
      <p>
        {location.origin} is not encrypted: a browser gives such a page no key of its own, and others in the network
        could read along. Your token was not sent.
      </p>
      <p>Turn on TLS, on the gateway’s machine:</p>
      <CodeBlock code="homarus config set gateway.tls.enabled true" />
      <p>Then open the https:// link, or scan it:</p>
      <CodeBlock code="homarus qr" />
      <Button kind="primary" onClick={() => location.reload()}>
        Try again
      </Button>
    </Panel>
  );
}

/** A person has to approve this browser; it tries again until the request has an answer. */
function PairingWait({ requestId }: { requestId: string }): JSX.Element {
  const [asked, setAsked] = useState(requestId);
  const isRejected = asked !== requestId; // another request took its place
  useEffect(() => {
    if (isRejected) return undefined;
    const timer = setTimeout(connect, PAIRING_RETRY_MS);
    return () => clearTimeout(timer);
  });
  const goOn = (): void => {
    dropRequestedScopes();
    connect();
  };
  const back = hasRequestedMore() && <Button onClick={goOn}>Go on without it</Button>;
  if (isRejected)
    return (
      <Panel title="Not approved">
        <p>The request was rejected, or waited for too long.</p>
        <div class="row">
          <Button kind="primary" onClick={() => setAsked(requestId)}>
            Ask again
          </Button>
          {back}
        </div>
      </Panel>
    );
  return (
    <Panel title="Waiting for approval">
      <p>This browser is new to the gateway, or asks for more. Approve it on the gateway’s machine, or in a page there:</p>
      <CodeBlock code={`homarus devices approve ${requestId}`} />
      <p class="soft">This page goes on by itself once it is approved.</p>
      {back}
    </Panel>
  );
}

function Refused({ error }: { error: RequestError }): JSX.Element {
  const origins = JSON.stringify([location.origin]);
  return (
    <Panel title="Not connected">
      <p>The gateway refused: {escapeInvisible(error.message)}</p>
      {error.message.includes('allowedOrigins') && (
        <>
          <p>Allow this address:</p>
          <CodeBlock code={`homarus config set gateway.controlUi.allowedOrigins '${origins}'`} />
        </>
      )}
      {error.message.includes('protocol') && <p>The page and the gateway are of different versions: load the page again.</p>}
      <Button kind="primary" onClick={() => location.reload()}>
        Try again
      </Button>
    </Panel>
  );
}
