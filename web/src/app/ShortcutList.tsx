import './ShortcutList.css';
import type { JSX } from 'preact';
import { Dialog } from '../components/Dialog';
import { isListOpen, shortcuts } from './shortcuts';

/** The dialog with every shortcut that works now. */
export function ShortcutList(): JSX.Element | null {
  if (!isListOpen.value) return null;
  return (
    <Dialog
      title="Keyboard shortcuts"
      onClose={() => {
        isListOpen.value = false;
      }}
    >
      <dl class="shortcut-list">
        {shortcuts.value.map(({ keys, label }) => (
          <div key={keys}>
            <dt>
              {keys.split('+').map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{label}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
