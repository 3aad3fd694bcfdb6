import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Button } from '../../components/Button';
import { ErrorState } from '../../components/ErrorState';
import type { Conversation } from './conversation';

interface Props {
  conversation: Conversation;
  /** The id of the oldest message that is there. */
  firstId: string;
}

/** Loads older messages when the reader comes to the oldest one. */
export function OlderMessages({ conversation, firstId }: Props): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const error = conversation.olderError.value;
  const load = (): void => void conversation.loadOlder();
  // Again with each older message: the oldest one may still be in view.
  useEffect(() => {
    if (error !== null) return undefined; // a failure would repeat itself
    const observer = new IntersectionObserver((entries) => {
      // What was seen in several frames may come at once: the last is how it is now.
      if (entries.at(-1)?.isIntersecting) void conversation.loadOlder();
    });
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [conversation, firstId, error]);
  return (
    <div class="chat-older" ref={box}>
      {error === null ? (
        <Button kind="quiet" small onClick={load}>
          Load older messages
        </Button>
      ) : (
        <ErrorState error={error} onRetry={load} />
      )}
    </div>
  );
}
