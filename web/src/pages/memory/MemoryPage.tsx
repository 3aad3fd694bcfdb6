import './MemoryPage.css';
import type { JSX } from 'preact';
import { useCallback, useState } from 'preact/hooks';
import { navigate, route } from '../../app/router';
import { AgentSelect } from '../../components/AgentSelect';
import { ErrorState } from '../../components/ErrorState';
import { Page } from '../../components/Page';
import { useRequest } from '../../gateway/useRequest';
import { IndexStatus } from './IndexStatus';
import { NoteDialog, type NoteSpot } from './NoteDialog';
import { NoteTimeline } from './NoteTimeline';
import { MemorySearch } from './MemorySearch';

/** What an agent remembers: search, the notes of each day, and the index. */
export default function MemoryPage(): JSX.Element {
  const agents = useRequest('agents.list', {});
  const [open, setOpen] = useState<NoteSpot | null>(null);
  const [searches, setSearches] = useState(0);
  const agentId = route.value.query.agent ?? agents.data?.defaultId ?? '';
  // A search brings the index up to date.
  const countSearch = useCallback(() => setSearches((count) => count + 1), []);
  return (
    <Page
      title="Memory"
      aside={
        <AgentSelect agents={agents.data?.agents ?? []} selected={agentId} onSelect={(agent) => navigate('memory', { agent })} />
      }
    >
      <div class="stack">
        {agents.error !== null && <ErrorState error={agents.error} onRetry={agents.reload} />}
        {agentId && (
          <div class="memory-layout" key={agentId}>
            <MemorySearch agentId={agentId} onOpen={setOpen} onFound={countSearch} />
            <div class="stack">
              <IndexStatus agentId={agentId} searches={searches} />
              <NoteTimeline agentId={agentId} onOpen={setOpen} />
            </div>
          </div>
        )}
      </div>
      {open && <NoteDialog agentId={agentId} spot={open} onClose={() => setOpen(null)} />}
    </Page>
  );
}
