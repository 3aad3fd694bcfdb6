import type { JSX } from 'preact';
import { CodeBlock } from '../../components/CodeBlock';
import { Dialog } from '../../components/Dialog';

interface Props {
  token: string;
  onClose: () => void;
}

/** The token of a device, which is shown once. */
export function NewToken({ token, onClose }: Props): JSX.Element {
  return (
    <Dialog title="New token" onClose={onClose}>
      <div class="stack">
        <p>Enter it on the device. It is not shown again.</p>
        <CodeBlock code={token} />
      </div>
    </Dialog>
  );
}
