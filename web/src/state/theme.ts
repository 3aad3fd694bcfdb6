import { effect, signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const NAME = 'theme';
const stored = localStorage.getItem(NAME);

export const theme = signal<Theme>(stored === 'light' || stored === 'dark' ? stored : 'system');

effect(() => {
  if (theme.value === 'system') {
    localStorage.removeItem(NAME);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(NAME, theme.value);
    document.documentElement.dataset.theme = theme.value;
  }
});
