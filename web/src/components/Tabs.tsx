import './Tabs.css';
import type { JSX } from 'preact';

interface Tab<T extends string> {
  id: T;
  label: string;
  count?: number;
}

interface Props<T extends string> {
  label: string;
  tabs: readonly Tab<T>[];
  selected: T;
  onSelect: (id: T) => void;
}

/** Tabs; the arrow keys move between them. The panel belongs below, with `role="tabpanel"`. */
export function Tabs<T extends string>({ label, tabs, selected, onSelect }: Props<T>): JSX.Element {
  const move = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === selected);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onSelect(next.id);
    const list = event.currentTarget as HTMLElement;
    const buttons = list.querySelectorAll<HTMLElement>('[role=tab]');
    buttons[tabs.indexOf(next)]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          class="tab"
          aria-selected={tab.id === selected}
          tabIndex={tab.id === selected ? 0 : -1}
          onClick={() => onSelect(tab.id)}
        >
          {tab.label}
          {tab.count !== undefined && <span class="tab-count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}
