import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { Diff } from '../../components/Diff';
import { ErrorState } from '../../components/ErrorState';
import { oneLine } from '../../markdown/text';
import type { ConfigCheck } from '../../protocol/operation-results';
import { diffLines } from '../../state/diff';
import { IssueList } from './IssueList';

interface Props {
  check: ConfigCheck;
  before: string;
  after: string;
  onApply: () => Promise<void>;
  onClose: () => void;
}

/** What would change, before it does; secrets are hidden on both sides. */
export function ReviewDialog({ check, before, after, onApply, onClose }: Props): JSX.Element {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const apply = (): void => {
    setBusy(true);
    setError(null);
    onApply().then(onClose, (failure: unknown) => {
      setError(failure);
      setBusy(false);
    });
  };
  const isRestart = check.action === 'restart';
  return (
    <Dialog
      title={check.ok ? 'Review changes' : 'The config is not valid'}
      onClose={onClose}
      wide
      actions={
        <>
          <Button onClick={onClose}>{check.ok ? 'Cancel' : 'Go on editing'}</Button>
          {check.ok && check.action !== 'none' && (
            <Button kind="primary" isBusy={isBusy} onClick={apply}>
              {isRestart ? 'Apply and restart' : 'Apply'}
            </Button>
          )}
        </>
      }
    >
      <div class="stack">
        {!check.ok && <IssueList issues={check.issues} />}
        {check.ok && check.action === 'none' && <p>Nothing would change.</p>}
        {isRestart && (
          <p class="config-notice" role="status">
            The gateway restarts to use this. Active runs are finished or resumed, and this page connects again.
          </p>
        )}
        {check.notBuilt && check.notBuilt.length > 0 && (
          <p class="config-notice">Without effect here: {check.notBuilt.map((key) => oneLine(key, 80)).join(', ')}</p>
        )}
        {check.ok && check.action !== 'none' && <Diff lines={diffLines(before, after)} label="Changes of the config" />}
        {error !== null && <ErrorState error={error} />}
      </div>
    </Dialog>
  );
}
