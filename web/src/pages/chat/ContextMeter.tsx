import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Meter } from '../../components/Meter';
import { may } from '../../gateway/gateway';
import type { SessionRow } from '../../protocol/results';
import { formatCount } from '../../state/format';
import { PromptReportDialog } from './PromptReportDialog';

/** How full the model's context is; it opens what the prompt consists of. */
export function ContextMeter({ row }: { row: SessionRow }): JSX.Element | null {
  const [isOpen, setOpen] = useState(false);
  const { totalTokens, contextTokens } = row;
  if (!totalTokens || !contextTokens) return null;
  const share = totalTokens / contextTokens;
  const words = `${formatCount(totalTokens)} of ${formatCount(contextTokens)} tokens of the context are used`;
  return (
    <>
      <button type="button" class="context-meter" title={words} disabled={!may('admin')} onClick={() => setOpen(true)}>
        <Meter value={share} label="Context used" />
        <span>{Math.round(share * 100)} % context</span>
      </button>
      {isOpen && <PromptReportDialog sessionKey={row.key} note={words} onClose={() => setOpen(false)} />}
    </>
  );
}
