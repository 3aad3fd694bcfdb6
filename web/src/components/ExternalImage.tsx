import type { JSX } from 'preact';
import { Icon } from './Icon';

interface Props {
  address: string;
  host: string;
  label: string;
}

/**
 * An image of another server. The page never loads it, which would tell that server who reads it:
 * the person may open it in a tab of its own.
 */
export function ExternalImage({ address, host, label }: Props): JSX.Element {
  return (
    <a class="external-image" href={address} title={address} target="_blank" rel="noopener noreferrer nofollow">
      <Icon name="image" />
      <span>{label ? `Image: ${label}` : 'Image'}</span>
      <span class="md-aside">Open from {host}</span>
    </a>
  );
}
