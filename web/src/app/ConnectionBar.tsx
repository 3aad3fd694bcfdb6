import './ConnectionBar.css';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Button } from '../components/Button';
import { connect, connection } from '../gateway/gateway';
import { escapeInvisible } from '../markdown/text';

/** A thin bar while the connection is lost: when it is tried again, and a button to try now. */
export function ConnectionBar(): JSX.Element | null {
  const state = connection.value;
  const [now, setNow] = useState(Date.now());
  const isWaiting = state.state === 'waiting';
  useEffect(() => {
    if (!isWaiting) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(timer);
  }, [isWaiting]);
  if (!isWaiting) return null;
  const leftS = Math.ceil((state.untilMs - now) / 1000);
  const reason = state.reason ? escapeInvisible(state.reason) : 'The gateway does not answer';
  return (
    <div class="connection-bar" role="status">
      <span>
        {reason}. {leftS > 0 ? `Reconnecting in ${leftS} s` : 'Reconnecting…'}
      </span>
      <Button small onClick={connect}>
        Try now
      </Button>
    </div>
  );
}
