import { signal } from '@preact/signals';

export interface Toast {
  id: number;
  tone: 'info' | 'ok' | 'bad';
  text: string;
  action?: { label: string; run: () => void };
}

export const toasts = signal<readonly Toast[]>([]);

const SHOWN_MS = 6_000;
const MAX_TOASTS = 4;
let lastId = 0;

/** Show a short notice anywhere in the UI. A failure stays until it is closed. */
export function showToast(toast: Omit<Toast, 'id'>): void {
  const id = ++lastId;
  toasts.value = [...toasts.value, { ...toast, id }].slice(-MAX_TOASTS);
  if (toast.tone !== 'bad') setTimeout(() => closeToast(id), SHOWN_MS);
}

export function closeToast(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}
