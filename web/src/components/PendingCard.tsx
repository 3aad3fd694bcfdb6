import './PendingCard.css';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { gatewayNow } from '../gateway/clock';
import { isConnected } from '../gateway/gateway';
import { formatCountdown } from '../state/format';
import { useNow } from '../state/useNow';
import { Icon } from './Icon';
import type { IconName } from './icons';

interface Props {
  icon: IconName;
  title: string;
  expiresAtMs: number;
  children: ComponentChildren;
  /** The buttons; they work a moment after the card appeared, and while the gateway is connected. */
  actions: (isReady: boolean) => ComponentChildren;
  id: string;
}

const SETTLE_MS = 600; // a click that was meant for what was there before is no answer

/** Something that waits for a person: an approval, a question or a device. */
export function PendingCard({ icon, title, expiresAtMs, children, actions, id }: Props): JSX.Element {
  useNow(1_000);
  const [isSettled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLE_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <section class="pending-card" aria-label={title} data-pending={id}>
      <header class="pending-head">
        <Icon name={icon} />
        <h2>{title}</h2>
        {expiresAtMs > 0 && <span class="spread">expires in {formatCountdown((expiresAtMs - gatewayNow()) / 1000)}</span>}
      </header>
      <div class="pending-body">{children}</div>
      <footer class="pending-actions">{actions(isSettled && isConnected.value)}</footer>
    </section>
  );
}
