import './Dialog.css';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { Button } from './Button';

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** The buttons below. */
  actions?: ComponentChildren;
  wide?: boolean;
}

/** A modal dialog. The browser keeps the focus in it and returns it afterwards; Escape closes it, and a click beside it. */
export function Dialog({ title, onClose, children, actions, wide }: Props): JSX.Element {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const wasPressed = useRef(false);
  // Not when a selection ends there, and not with a form: what was typed would be lost.
  const closeOnBackdrop = (event: MouseEvent): void => {
    const dialog = ref.current;
    if (event.target === dialog && wasPressed.current && !dialog?.querySelector('form')) onClose();
  };
  return (
    <dialog
      ref={ref}
      class={`dialog ${wide ? 'dialog-wide' : ''}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onPointerDown={(event) => {
        wasPressed.current = event.target === ref.current;
      }}
      onClick={closeOnBackdrop}
    >
      <div class="dialog-box">
        <header class="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button kind="quiet" icon="close" label="Close" onClick={onClose} />
        </header>
        <div class="dialog-body">{children}</div>
        {actions !== undefined && <footer class="dialog-actions">{actions}</footer>}
      </div>
    </dialog>
  );
}
