import type { ComponentChildren, JSX } from 'preact';
import { hrefOf, navigate, type Route } from './router';

interface Props {
  to: string;
  query?: Route['query'];
  children: ComponentChildren;
  class?: string;
  isCurrent?: boolean;
  title?: string;
  onNavigate?: () => void;
}

/** A link to a page of this UI, which loads nothing again; with a modifier key it opens a tab. */
export function Link({ to, query, children, class: className, isCurrent, title, onNavigate }: Props): JSX.Element {
  const go = (event: MouseEvent): void => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    navigate(to, query);
    onNavigate?.();
  };
  return (
    <a href={hrefOf(to, query)} class={className} title={title} aria-current={isCurrent ? 'page' : undefined} onClick={go}>
      {children}
    </a>
  );
}
