import './Menu.css';
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon } from './Icon';
import type { IconName } from './icons';

export interface MenuItem {
  label: string;
  icon?: IconName;
  isDanger?: boolean;
  isChecked?: boolean;
  disabled?: boolean;
  onSelect: () => void;
}

interface Props {
  /** The name of the button, and its tooltip. */
  label: string;
  icon?: IconName;
  children?: ComponentChildren;
  items: readonly MenuItem[];
  /** Opens above the button. */
  isUp?: boolean;
  class?: string;
}

/** A button that opens a menu; the arrow keys, Home, End and Escape work in it. */
export function Menu({ label, icon, children, items, isUp, class: extra = '' }: Props): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isOpen) return undefined;
    box.current?.querySelector<HTMLElement>('[role^=menuitem]:not(:disabled)')?.focus();
    const closeOutside = (event: Event): void => {
      if (!box.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener('pointerdown', closeOutside);
    return () => removeEventListener('pointerdown', closeOutside);
  }, [isOpen]);
  const close = (): void => {
    setOpen(false);
    box.current?.querySelector<HTMLElement>('.menu-button')?.focus();
  };
  const move = (event: KeyboardEvent): void => {
    if (!isOpen) return;
    if (event.key === 'Escape') {
      event.stopPropagation();
      close();
      return;
    }
    const found = [...(box.current?.querySelectorAll<HTMLElement>('[role^=menuitem]:not(:disabled)') ?? [])];
    const at = found.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: found.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    found[(next + found.length) % found.length]?.focus();
  };
  return (
    <div
      class={`menu ${extra}`}
      ref={box}
      onKeyDown={move}
      onFocusOut={({ relatedTarget }) => {
        if (relatedTarget && !box.current?.contains(relatedTarget as Node)) setOpen(false);
      }}
    >
      <button
        type="button"
        class="menu-button"
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-label={children === undefined ? label : undefined}
        title={label}
        onClick={() => setOpen(!isOpen)}
      >
        {icon && <Icon name={icon} />}
        {children}
      </button>
      {isOpen && (
        <div class={`menu-list ${isUp ? 'menu-up' : ''}`} role="menu" aria-label={label}>
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role={item.isChecked === undefined ? 'menuitem' : 'menuitemradio'}
              aria-checked={item.isChecked}
              class={`menu-item ${item.isDanger ? 'menu-danger' : ''}`}
              disabled={item.disabled ?? false}
              tabIndex={-1}
              onClick={() => {
                close();
                item.onSelect();
              }}
            >
              {item.icon && <Icon name={item.icon} />}
              <span>{item.label}</span>
              {item.isChecked && <Icon name="check" />}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
