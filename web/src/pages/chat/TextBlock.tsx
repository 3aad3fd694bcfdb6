import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import { Markdown } from '../../components/Markdown';
import { call } from '../../gateway/gateway';
import { textOf, type Block } from './turns';

interface Props {
  block: Extract<Block, { kind: 'text' }>;
  sessionKey: string;
}

/** Text of the agent; one that the history has cut can be loaded. */
export function TextBlock({ block, sessionKey }: Props): JSX.Element {
  const [full, setFull] = useState('');
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const load = (): void => {
    setBusy(true);
    setError(null);
    call('chat.message.get', { sessionKey, messageId: block.cutId })
      .then(({ message }) => setFull(message ? textOf(message.content) : ''), setError)
      .finally(() => setBusy(false));
  };
  return (
    <>
      <Markdown text={full || block.text} />
      {block.cutId && !full && (
        <Button small isBusy={isBusy} onClick={load}>
          Show all of it
        </Button>
      )}
      {error !== null && <ErrorState error={error} />}
    </>
  );
}
