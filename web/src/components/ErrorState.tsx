import './ErrorState.css';
import type { JSX } from 'preact';
import { describeError, NoAnswerError, RequestError } from '../gateway/errors';
import { escapeInvisible } from '../markdown/text';
import { Button } from './Button';
import { Icon } from './Icon';
import { ScopeRequest } from './ScopeRequest';

interface Props {
  /** What failed, as the thrown error. */
  error: unknown;
  onRetry?: () => void;
  /** Whether it is loaded again by itself; so is what can be retried. */
  isRepeated?: boolean;
}

/** Shown where something could not be loaded or done: why, and what to do. */
export function ErrorState({ error, onRetry, isRepeated = onRetry !== undefined }: Props): JSX.Element {
  const scope = error instanceof RequestError ? error.missingScope : '';
  if (scope) return <ScopeRequest scope={scope} />;
  return (
    <div class="error-state" role="alert">
      <Icon name="alert" />
      <p>
        {escapeInvisible(describeError(error))}
        {error instanceof NoAnswerError && `. ${adviceFor(error, isRepeated)}`}
      </p>
      {onRetry && (
        <Button icon="retry" onClick={onRetry} small>
          Try again
        </Button>
      )}
    </div>
  );
}

/** What is loaded comes back by itself; an action is not repeated without the person. */
function adviceFor({ wasSent }: NoAnswerError, isRepeated: boolean): string {
  if (isRepeated) return 'It is loaded again when the connection is back.';
  return wasSent ? 'It may have been done: look before you repeat it.' : 'It was not done: try again when the connection is back.';
}
