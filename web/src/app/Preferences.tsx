import type { JSX } from 'preact';
import { Menu, type MenuItem } from '../components/Menu';
import { permission, requestNotifications } from '../state/notifications';
import { theme, type Theme } from '../state/theme';
import { isListOpen } from './shortcuts';

const THEMES: readonly (readonly [Theme, string])[] = [
  ['system', 'As the system'],
  ['light', 'Light'],
  ['dark', 'Dark'],
];

/** What this browser shows: theme, notifications and the list of shortcuts. */
export function Preferences(): JSX.Element {
  const items: MenuItem[] = THEMES.map(([value, label]) => ({
    label,
    isChecked: theme.value === value,
    onSelect: () => {
      theme.value = value;
    },
  }));
  if (permission.value === 'default')
    items.push({ label: 'Notify me of approvals', icon: 'bell', onSelect: () => void requestNotifications() });
  items.push({
    label: 'Keyboard shortcuts',
    icon: 'keyboard',
    onSelect: () => {
      isListOpen.value = true;
    },
  });
  return <Menu label="Preferences" icon="more" items={items} isUp class="preferences" />;
}
