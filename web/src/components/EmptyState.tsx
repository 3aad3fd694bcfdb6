import './EmptyState.css';
import type { ComponentChildren, JSX } from 'preact';
import { Icon } from './Icon';
import type { IconName } from './icons';

interface Props {
  icon?: IconName;
  title: string;
  /** What the person can do. */
  children?: ComponentChildren;
  action?: ComponentChildren;
}

/** Shown where a list has nothing: what this is, and what to do. */
export function EmptyState({ icon, title, children, action }: Props): JSX.Element {
  return (
    <div class="empty">
      {icon && <Icon name={icon} />}
      <h2>{title}</h2>
      {children !== undefined && <p>{children}</p>}
      {action}
    </div>
  );
}
