import './Navigation.css';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Badge } from '../components/Badge';
import { Icon } from '../components/Icon';
import { PAGES } from '../pages';
import type { PageEntry } from '../pages/entry';
import { Link } from './Link';
import { route } from './router';

const STORED = 'morePages';
const RARE = PAGES.filter(({ isRare }) => isRare);

/** The pages: those of every day, and the others behind “More pages”. */
export function Navigation({ onNavigate }: { onNavigate: () => void }): JSX.Element {
  const [isOpen, setOpen] = useState(localStorage.getItem(STORED) === 'open');
  const isInside = RARE.some(({ path }) => path === route.value.path);
  useEffect(() => {
    if (isInside) setOpen(true);
  }, [isInside]);
  const toggle = ({ currentTarget }: { currentTarget: HTMLDetailsElement }): void => {
    setOpen(currentTarget.open);
    if (!currentTarget.open) localStorage.removeItem(STORED);
    else if (!isInside) localStorage.setItem(STORED, 'open');
  };
  const show = (page: PageEntry): JSX.Element => <PageLink key={page.path} page={page} onNavigate={onNavigate} />;
  return (
    <nav class="navigation" aria-label="Pages">
      {PAGES.filter(({ isRare }) => !isRare).map(show)}
      <details open={isOpen} onToggle={toggle}>
        <summary>
          <Icon name="down" />
          More pages
        </summary>
        {RARE.map(show)}
      </details>
    </nav>
  );
}

function PageLink({ page, onNavigate }: { page: PageEntry; onNavigate: () => void }): JSX.Element {
  const badge = page.getBadge?.() ?? 0;
  return (
    <Link to={page.path} isCurrent={route.value.path === page.path} onNavigate={onNavigate}>
      <Icon name={page.icon} />
      {page.title}
      {badge > 0 && (
        <span class="spread">
          <Badge tone="accent">{badge}</Badge>
        </span>
      )}
    </Link>
  );
}
