import './Sidebar.css';
import type { JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Button } from '../components/Button';
import { Dot } from '../components/Dot';
import { connection } from '../gateway/gateway';
import { focusDrawerOpener, isDrawerOpen } from '../state/layout';
import { Conversations } from './Conversations';
import { Navigation } from './Navigation';
import { Preferences } from './Preferences';
import { useShortcut } from './shortcuts';

const STATES = { open: 'Connected', connecting: 'Connecting…', waiting: 'Reconnecting…', refused: 'Not connected' };
const TONES = { open: 'ok', connecting: 'warn', waiting: 'warn', refused: 'bad' } as const;

/** Navigation, conversations and the state of the connection; a drawer on a phone. */
export function Sidebar(): JSX.Element {
  const box = useRef<HTMLElement>(null);
  const isOpen = isDrawerOpen.value;
  const { state } = connection.value;
  const close = (): void => {
    isDrawerOpen.value = false;
  };
  useShortcut('Escape', 'Close the menu', close, isOpen); // before “Stop the answer”
  useEffect(() => {
    if (!isOpen) return undefined;
    const sidebar = box.current;
    sidebar?.querySelector<HTMLElement>('a')?.focus();
    return () => {
      const { activeElement } = document;
      if (activeElement === document.body || sidebar?.contains(activeElement)) focusDrawerOpener();
    };
  }, [isOpen]);
  return (
    <>
      {isOpen && <div class="sidebar-scrim" onClick={close} />}
      <aside
        ref={box}
        class={`sidebar ${isOpen ? 'sidebar-open' : ''}`}
        aria-label="Navigation"
      >
        <div class="sidebar-brand">
          <span class="sidebar-logo" aria-hidden="true">
            H
          </span>
          <span>Homarus</span>
          <Button class="sidebar-close" kind="quiet" icon="close" label="Close the menu" onClick={close} />
        </div>
        <Navigation onNavigate={close} />
        <Conversations onNavigate={close} />
        <div class="sidebar-state">
          <Dot tone={TONES[state]} />
          <span data-testid="connection-state">{STATES[state]}</span>
          <span class="spread row">
            <small>{location.host}</small>
            <Preferences />
          </span>
        </div>
      </aside>
    </>
  );
}
