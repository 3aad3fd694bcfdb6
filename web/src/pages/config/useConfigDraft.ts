import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { call } from '../../gateway/gateway';
import type { ConfigCheck, ConfigView } from '../../protocol/operation-results';
import { showToast } from '../../state/toasts';
import { setUnsaved } from '../../state/unsaved';
import { findChanges, formatTree, isObject, isSame, replay, setAt, type Path, type Tree } from './configTree';

export type Mode = 'form' | 'raw';

interface ConfigDraft {
  tree: Tree;
  text: string;
  isChanged: boolean;
  /** The file was changed elsewhere while there are changes here; they were made again on it. */
  isMoved: boolean;
  onChange: (path: Path, value: unknown) => void;
  onText: (text: string) => void;
  /** Carry changes over to the other view; false when the text cannot be shown as a form. */
  carryTo: (mode: Mode) => boolean;
  discard: () => void;
  validate: () => Promise<ConfigCheck>;
  apply: () => Promise<void>;
}

interface Edited {
  base: ConfigView;
  tree: Tree;
  text: string;
}

/** What was edited when the person went to another page. */
let kept: Edited | null = null;

/** Return the view in which the person left changes. */
export function keptMode(): Mode {
  return kept && kept.text !== (kept.base.raw ?? '{}\n') ? 'raw' : 'form';
}

/** Hold what is edited, as a tree or as text, over the file that the gateway showed last. */
export function useConfigDraft(view: ConfigView, mode: Mode, onReload: () => void): ConfigDraft {
  const [base, setBase] = useState(kept?.base ?? view);
  const [tree, setTree] = useState<Tree>(kept?.tree ?? view.parsed);
  const [text, setText] = useState(kept?.text ?? view.raw ?? '{}\n');
  const [isMoved, setMoved] = useState(false);
  const state = useRef<Edited>({ base, tree, text });
  state.current = { base, tree, text };
  const isEdited = !isSame(tree, base.parsed) || text !== (base.raw ?? '{}\n');
  useEffect(() => setUnsaved('config', isEdited), [isEdited]);
  useEffect(() => {
    kept = isEdited ? state.current : null;
  });
  useEffect(() => {
    const { base: before, tree: edited, text: written } = state.current;
    if (before === view) return;
    const changes = findChanges(before.parsed, edited);
    const isTextChanged = written !== (before.raw ?? '{}\n');
    setTree(replay(view.parsed, changes));
    if (!isTextChanged) setText(view.raw ?? '{}\n');
    if (before.hash !== view.hash) setMoved(changes.length > 0 || isTextChanged);
    setBase(view);
  }, [view]);
  const raw = mode === 'form' ? formatTree(tree) : text;
  const baseHash = base.hash ?? null;
  const validate = useCallback(async () => {
    const check = await call('config.validate', { raw, baseHash });
    if (check.isStale) onReload();
    return check;
  }, [raw, baseHash, onReload]);
  const discard = (): void => {
    setTree(base.parsed);
    setText(base.raw ?? '{}\n');
    setMoved(false);
  };
  const carryTo = (next: Mode): boolean => {
    if (next === mode) return true;
    if (next === 'raw') {
      if (!isSame(tree, base.parsed)) setText(formatTree(tree));
      return true;
    }
    if (text === (base.raw ?? '{}\n')) return true;
    const parsed = parseObject(text);
    if (parsed) setTree(parsed);
    return parsed !== null;
  };
  const apply = async (): Promise<void> => {
    const { applied } = await call('config.apply', { raw, baseHash });
    const isRestart = applied.action === 'restart';
    showToast({ tone: 'ok', text: isRestart ? 'Saved. The gateway restarts.' : 'Saved and in use.' });
    setMoved(false);
    // What was edited is in the file now: the next answer is the base of both views.
    setBase({ ...base, parsed: tree, raw: text });
    onReload();
  };
  return {
    tree,
    text,
    isChanged: mode === 'form' ? !isSame(tree, base.parsed) : text !== (base.raw ?? '{}\n'),
    isMoved,
    onChange: useCallback((path: Path, value: unknown) => setTree((before) => setAt(before, path, value)), []),
    onText: setText,
    carryTo,
    discard,
    validate,
    apply,
  };
}

/** Return the object that a text is in JSON; null for JSON5 with comments, which only the gateway reads. */
function parseObject(text: string): Tree | null {
  try {
    const parsed: unknown = JSON.parse(text);
    return isObject(parsed) ? parsed : null;
  } catch {
    return null;
  }
}
