import type { ComponentType, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { EmptyState } from '../components/EmptyState';
import { ErrorState } from '../components/ErrorState';
import { Loading } from '../components/Loading';
import { Page } from '../components/Page';
import type { PageEntry } from '../pages/entry';
import { Link } from './Link';
import { findPage, route } from './router';

const loaded = new Map<string, ComponentType>();

/** Shows the page of the address, and moves the focus to its title when that changes. */
export function PageHost(): JSX.Element {
  const { path } = route.value;
  const entry = findPage(path);
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = entry ? `${entry.title} · Homarus` : 'Homarus';
    if (!isFirst.current) focusTitle();
    isFirst.current = false;
  }, [entry]);
  if (entry) return <LazyPage key={path} entry={entry} isFirst={isFirst.current} />;
  return (
    <Page title="Not found">
      <EmptyState icon="question" title="There is no such page" action={<Link to="chat">Go to the chat</Link>} />
    </Page>
  );
}

function focusTitle(): void {
  document.getElementById('page-title')?.focus();
}

function LazyPage({ entry, isFirst }: { entry: PageEntry; isFirst: boolean }): JSX.Element {
  const takesFocus = useRef(!isFirst);
  const [, setReady] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const Content = loaded.get(entry.path);
  useEffect(() => {
    if (loaded.has(entry.path)) return;
    entry.load().then((module) => {
      loaded.set(entry.path, module.default);
      setReady((count) => count + 1);
    }, setError);
  }, [entry]);
  useEffect(() => {
    // The title that had the focus was that of the empty page before it.
    if (Content && takesFocus.current && document.activeElement === document.body) focusTitle();
  }, [Content]);
  if (Content) return <Content />;
  return (
    <Page title={entry.title}>
      {error === null ? (
        <Loading />
      ) : (
        // The gateway was updated: files of the old version are gone.
        <ErrorState error={new Error('This page could not be loaded. Load the UI again.')} onRetry={() => location.reload()} />
      )}
    </Page>
  );
}
