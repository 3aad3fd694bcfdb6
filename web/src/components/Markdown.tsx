import './Markdown.css';
import type { JSX } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { releaseView, takeView, type MarkdownView } from '../markdown/view';

interface Props {
  text: string;
}

/** Markdown as nodes. A text that grows is parsed and drawn from its last block on. */
export function Markdown({ text }: Props): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  useLayoutEffect(() => {
    if (!view.current) {
      view.current = takeView(text);
      place.current?.append(view.current.element);
    }
    if (view.current.text !== text) view.current.show(text);
  }, [text]);
  useLayoutEffect(
    () => () => {
      if (view.current) releaseView(view.current);
      view.current = null;
    },
    [],
  );
  return <div class="markdown-place" ref={place} />;
}
