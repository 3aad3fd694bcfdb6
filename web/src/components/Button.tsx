import './Button.css';
import type { ComponentChildren, JSX } from 'preact';
import { Icon } from './Icon';
import type { IconName } from './icons';

interface Props {
  children?: ComponentChildren;
  kind?: 'primary' | 'plain' | 'danger' | 'quiet';
  icon?: IconName;
  /** The name of a button that shows an icon alone; also its tooltip. */
  label?: string;
  isBusy?: boolean;
  disabled?: boolean;
  type?: 'button' | 'submit';
  onClick?: (event: MouseEvent) => void;
  class?: string;
  pressed?: boolean;
  expanded?: boolean;
  small?: boolean;
}

/** A button. One that works on something shows that with `isBusy` and cannot be pressed again. */
export function Button(props: Props): JSX.Element {
  const { children, kind = 'plain', icon, label, isBusy = false, type = 'button' } = props;
  const isIconOnly = icon !== undefined && children === undefined;
  const classes = ['button', `button-${kind}`, isIconOnly && 'button-icon', props.small && 'button-small', props.class];
  return (
    <button
      type={type}
      class={classes.filter(Boolean).join(' ')}
      disabled={(props.disabled ?? false) || isBusy}
      aria-label={label}
      title={label}
      aria-busy={isBusy || undefined}
      aria-pressed={props.pressed}
      aria-expanded={props.expanded}
      onClick={props.onClick}
    >
      {icon && <Icon name={icon} />}
      {children !== undefined && <span class="button-text">{children}</span>}
    </button>
  );
}
