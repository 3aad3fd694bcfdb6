import './App.css';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { refusal } from '../gateway/gateway';
import { PAGES } from '../pages';
import { SetupOffer } from '../pages/setup/SetupOffer';
import { announcement } from '../state/announce';
import { isDrawerOpen } from '../state/layout';
import { ApprovalToasts } from './ApprovalToasts';
import { BottomBar } from './BottomBar';
import { ConnectionBar } from './ConnectionBar';
import { Gate } from './Gate';
import { PageHost } from './PageHost';
import { navigate } from './router';
import { ShortcutList } from './ShortcutList';
import { isListOpen, useShortcut } from './shortcuts';
import { Sidebar } from './Sidebar';
import { Toasts } from './Toasts';

/** The shell around every page. */
export function App(): JSX.Element {
  useShortcut('?', 'Show the keyboard shortcuts', () => {
    isListOpen.value = true;
  });
  return (
    <div class="app">
      <a class="skip-link" href="#page-title">
        Skip to the content
      </a>
      <Sidebar />
      <div class="app-main" inert={isDrawerOpen.value}>
        <ConnectionBar />
        <SetupOffer />
        <ApprovalToasts />
        <main class="app-page">{refusal.value ? <Gate error={refusal.value} /> : <PageHost />}</main>
        <BottomBar />
      </div>
      <Toasts />
      <ShortcutList />
      {PAGES.slice(0, 9).map((page, at) => (
        <PageShortcut key={page.path} at={at + 1} path={page.path} title={page.title} />
      ))}
      <NotificationOpener />
      <p class="visually-hidden" role="status" aria-live="polite">
        {announcement.value}
      </p>
    </div>
  );
}

function PageShortcut({ at, path, title }: { at: number; path: string; title: string }): null {
  useShortcut(`Alt+${at}`, `Go to ${title}`, () => {
    isDrawerOpen.value = false;
    navigate(path);
  });
  return null;
}

/** Opens the page of a notification that the person clicked. */
function NotificationOpener(): null {
  useEffect(() => {
    const open = (event: Event): void => navigate(String((event as CustomEvent).detail));
    addEventListener('homarus-open', open);
    return () => removeEventListener('homarus-open', open);
  }, []);
  return null;
}
