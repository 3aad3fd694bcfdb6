import './Icon.css';
import type { JSX } from 'preact';
import { ICONS, type IconName } from './icons';

interface Props {
  name: IconName;
  /** What it means, where no text beside it says so. */
  label?: string;
}

/** A line icon. */
export function Icon({ name, label }: Props): JSX.Element {
  const role = label ? { role: 'img' as const, 'aria-label': label } : { 'aria-hidden': true as const };
  return (
    <svg class="icon" viewBox="0 0 24 24" {...role}>
      <path d={ICONS[name]} />
    </svg>
  );
}
