import { createContext } from 'preact';
import type { Path, Tree } from './configTree';

/** The settings as they are edited; fields read and change them here. */
export interface Draft {
  tree: Tree;
  hints: Readonly<Record<string, { sensitive?: boolean }>>;
  onChange: (path: Path, value: unknown) => void;
}

export const DraftContext = createContext<Draft>({ tree: {}, hints: {}, onChange: () => undefined });
