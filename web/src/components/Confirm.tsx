import type { ComponentChildren, JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from './Button';
import { Dialog } from './Dialog';
import { ErrorState } from './ErrorState';

interface Props {
  title: string;
  children: ComponentChildren;
  /** The verb on the button, such as “Delete conversation”. */
  verb: string;
  /** Does it; the dialog closes when this resolves and shows the error when it rejects. */
  onConfirm: () => Promise<unknown>;
  onClose: () => void;
}

/** Ask before something that cannot be undone. */
export function Confirm({ title, children, verb, onConfirm, onClose }: Props): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const confirm = (): void => {
    setBusy(true);
    onConfirm().then(onClose, (failure: unknown) => {
      setBusy(false);
      setError(failure);
    });
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      actions={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" isBusy={isBusy} onClick={confirm}>
            {verb}
          </Button>
        </>
      }
    >
      {children}
      {error !== null && <ErrorState error={error} />}
    </Dialog>
  );
}
