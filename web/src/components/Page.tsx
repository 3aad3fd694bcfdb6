import './Page.css';
import type { ComponentChildren, JSX } from 'preact';
import { openDrawer } from '../state/layout';
import { Button } from './Button';

interface Props {
  title: string;
  /** Beside the title: badges, meters. */
  badges?: ComponentChildren;
  /** At the right of the header: badges and buttons. */
  aside?: ComponentChildren;
  children: ComponentChildren;
  /** The page scrolls parts of itself, such as a chat. */
  isFixed?: boolean;
}

/** What every page is: a header of one row, and its content below it. */
export function Page({ title, badges, aside, children, isFixed }: Props): JSX.Element {
  return (
    <>
      <header class="page-head">
        <Button
          class="page-menu"
          kind="quiet"
          icon="menu"
          label="Menu"
          onClick={openDrawer}
        />
        <h1 tabIndex={-1} id="page-title" class="clip">
          {title}
        </h1>
        {badges}
        <div class="page-aside">{aside}</div>
      </header>
      {isFixed ? children : <div class="page-body">{children}</div>}
    </>
  );
}
