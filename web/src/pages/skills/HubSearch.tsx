import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { useRequest } from '../../gateway/useRequest';
import { escapeInvisible, oneLine } from '../../markdown/text';
import { HubDetail } from './HubDetail';

interface Props {
  /** The agent that gets a skill; undefined for the default agent. */
  agentId: string | undefined;
  onClose: () => void;
  onInstalled: () => void;
}

/** Search the registry of skills, and look at one before it is installed. */
export function HubSearch({ agentId, onClose, onInstalled }: Props): JSX.Element {
  const [text, setText] = useState('');
  const [query, setQuery] = useState('');
  const [slug, setSlug] = useState('');
  const { data, error, isLoading, reload } = useRequest('skills.search', query ? { query } : null);
  const search = (event: Event): void => {
    event.preventDefault();
    setSlug('');
    setQuery(text.trim());
  };
  return (
    <Dialog title="Find skills" onClose={onClose} wide>
      <div class="stack">
        <form class="skill-key" role="search" onSubmit={search}>
          <Field label="Search the registry">
            {(ids) => (
              <input class="input" type="search" {...ids} value={text} onInput={(event) => setText(event.currentTarget.value)} />
            )}
          </Field>
          <Button kind="primary" icon="search" type="submit" isBusy={isLoading} disabled={!text.trim()}>
            Search
          </Button>
        </form>
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading label="Searching" />}
        {slug && (
          <>
            <div>
              <Button small icon="back" onClick={() => setSlug('')}>
                Back to the results
              </Button>
            </div>
            <HubDetail agentId={agentId} slug={slug} onInstalled={onInstalled} />
          </>
        )}
        {!slug && data && query && (
          <ul class="skill-list" aria-label="Skills of the registry">
            {data.results.map((found) => (
              <li key={found.slug} class="skill-item">
                <div class="skill-head">
                  <strong>{oneLine(found.displayName || found.slug, 60)}</strong>
                  <span class="mono tiny soft">
                    {oneLine(`${found.ownerHandle && `@${found.ownerHandle}/`}${found.slug} ${found.version}`, 80)}
                  </span>
                  <span class="spread">
                    <Button small label={`Check ${found.slug}`} onClick={() => setSlug(found.ownerHandle ? `@${found.ownerHandle}/${found.slug}` : found.slug)}>
                      Check
                    </Button>
                  </span>
                </div>
                <p class="small">{escapeInvisible(found.summary)}</p>
              </li>
            ))}
            {!data.results.length && <li class="soft">No skill of the registry matches.</li>}
          </ul>
        )}
      </div>
    </Dialog>
  );
}
