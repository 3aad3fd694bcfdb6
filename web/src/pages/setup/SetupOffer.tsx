import './SetupOffer.css';
import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { Link } from '../../app/Link';
import { route } from '../../app/router';
import { Button } from '../../components/Button';
import { call, may, onEvent, onOpen } from '../../gateway/gateway';
import { hasModel, isUsable } from './hasModel';

/** A line above every page while the gateway has no model: it leads to the setup. */
export function SetupOffer(): JSX.Element | null {
  const [isNeeded, setNeeded] = useState(false);
  const [isClosed, setClosed] = useState(false);
  useEffect(() => {
    const check = (): void => {
      lacksModel().then(setNeeded, () => setNeeded(false)); // a page that needs the config says what is wrong
    };
    const stops = [onOpen(check), onEvent('config.reloaded', check)];
    return () => {
      for (const stop of stops) stop();
    };
  }, []);
  if (!isNeeded || isClosed || !may('admin') || route.value.path === 'setup') return null;
  return (
    <div class="setup-offer" role="status">
      <span>
        No model is configured yet. <Link to="setup">Set up your assistant</Link>
      </span>
      <Button small kind="quiet" icon="close" label="Close this notice" onClick={() => setClosed(true)} />
    </div>
  );
}

/** Return whether the config names no model, and the gateway finds none: no key in the environment, no local server. */
async function lacksModel(): Promise<boolean> {
  const { valid, parsed } = await call('config.get', {});
  if (!valid || hasModel(parsed) || !may('admin')) return false;
  return !isUsable(await call('models.status', {}));
}
