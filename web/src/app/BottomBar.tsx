import './BottomBar.css';
import type { JSX } from 'preact';
import { Icon } from '../components/Icon';
import { PAGES } from '../pages';
import { openDrawer } from '../state/layout';
import { Link } from './Link';
import { route } from './router';

const PLACES = 3;

/** The navigation of a phone: three pages, and the rest behind “More”. */
export function BottomBar(): JSX.Element {
  return (
    <nav class="bottom-bar" aria-label="Main pages">
      {PAGES.filter((page) => page.isInBar)
        .slice(0, PLACES)
        .map((page) => {
          const badge = page.getBadge?.() ?? 0;
          return (
            <Link key={page.path} to={page.path} isCurrent={route.value.path === page.path}>
              <span class="bottom-bar-icon">
                <Icon name={page.icon} />
                {badge > 0 && <b>{badge}</b>}
              </span>
              {page.title}
            </Link>
          );
        })}
      <button type="button" onClick={openDrawer}>
        <Icon name="menu" />
        More
      </button>
    </nav>
  );
}
