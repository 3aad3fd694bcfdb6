import type { ComponentType } from 'preact';
import type { IconName } from '../components/icons';

/** One page of the UI. */
export interface PageEntry {
  /** The address: one segment of a-z and -. */
  path: string;
  title: string;
  icon: IconName;
  /** Loads the page when it is first opened; its default export is the component. */
  load: () => Promise<{ default: ComponentType }>;
  /** In the bar at the bottom of a phone, which has place for three. */
  isInBar?: boolean;
  /** Behind “More pages” in the navigation. */
  isRare?: boolean;
  /** A number beside the title: what waits for the person. Read inside a component. */
  getBadge?: () => number;
}
