import type { JSX } from 'preact';
import { Dot } from '../../components/Dot';
import { escapeInvisible } from '../../markdown/text';
import { Blocks } from './Blocks';
import type { LiveRun } from './liveRun';

interface Props {
  run: LiveRun;
  /** Changes with each frame in which the run was drawn. */
  version: number;
}

/** An answer that is being made. */
export function LiveAnswer({ run }: Props): JSX.Element | null {
  const isRunning = run.state === 'running';
  const isEmpty = !run.blocks.length && !run.notice && !run.isSilent && run.state !== 'stopped' && run.state !== 'failed';
  if (isEmpty) return null; // the history has all of it
  return (
    <article class="chat-answer" aria-busy={isRunning} aria-label="The agent answers" data-run={run.runId}>
      <Blocks blocks={run.blocks} conversation={null} isLive={isRunning} />
      {run.notice && <p class="chat-note">{escapeInvisible(run.notice)}</p>}
      {isRunning && run.isSilent && (
        <p class="chat-working">
          <Dot tone="accent" /> Working…
        </p>
      )}
      {run.state === 'stopped' && <p class="chat-note">Stopped.</p>}
      {run.state === 'failed' && (
        <p class="chat-failure" role="alert">
          {escapeInvisible(run.error || 'The answer failed.')}
        </p>
      )}
    </article>
  );
}
