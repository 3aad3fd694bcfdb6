import './Toasts.css';
import type { JSX } from 'preact';
import { Button } from '../components/Button';
import { escapeInvisible } from '../markdown/text';
import { closeToast, toasts } from '../state/toasts';

/** Short notices at the corner of the window. */
export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text, action }) => (
        <div key={id} class={`toast toast-${tone}`}>
          <p>{escapeInvisible(text)}</p>
          {action && (
            <Button
              small
              onClick={() => {
                closeToast(id);
                action.run();
              }}
            >
              {action.label}
            </Button>
          )}
          <Button kind="quiet" small icon="close" label="Close the notice" onClick={() => closeToast(id)} />
        </div>
      ))}
    </div>
  );
}
