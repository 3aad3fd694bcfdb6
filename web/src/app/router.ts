/** The address of the page: one segment for the page, and a query for what it shows. */

import { signal } from '@preact/signals';
import { PAGES } from '../pages';
import type { PageEntry } from '../pages/entry';

export interface Route {
  path: string;
  query: Readonly<Record<string, string>>;
}

const DEFAULT_PATH = PAGES[0]?.path ?? '';

/** The folder that the UI is served from; all pages are directly in it. */
const base = new URL('./', location.origin + location.pathname).pathname;

export const route = signal<Route>(readRoute());

addEventListener('popstate', () => {
  route.value = readRoute();
});

/** Go to a page; with `replace`, without a new entry in the history. */
export function navigate(path: string, query: Route['query'] = {}, { replace = false } = {}): void {
  const address = hrefOf(path, query);
  if (address === location.pathname + location.search) return;
  if (replace) history.replaceState(null, '', address);
  else history.pushState(null, '', address);
  route.value = { path, query };
}

export function hrefOf(path: string, query: Route['query'] = {}): string {
  const search = new URLSearchParams(query).toString();
  return base + path + (search ? `?${search}` : '');
}

export function findPage(path: string): PageEntry | undefined {
  return PAGES.find((page) => page.path === path);
}

function readRoute(): Route {
  const segment = location.pathname.slice(base.length);
  const query = Object.fromEntries(new URLSearchParams(location.search));
  return { path: segment || DEFAULT_PATH, query };
}
