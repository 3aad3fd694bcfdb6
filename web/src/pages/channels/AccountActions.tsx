import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Confirm } from '../../components/Confirm';
import { ErrorState } from '../../components/ErrorState';
import { call } from '../../gateway/gateway';
import type { ChannelAccount } from '../../protocol/agent-results';
import { showToast } from '../../state/toasts';
import { patchConfig } from '../patchConfig';
import { removePatch, switchPatch } from './accountPatches';

interface Props {
  channel: string;
  account: ChannelAccount;
  onChanged: () => void;
}

/** Turn an account on or off, log it out, or remove it from the config. */
export function AccountActions({ channel, account, onChanged }: Props): JSX.Element {
  const [asked, setAsked] = useState<'off' | 'logout' | 'remove' | null>(null);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const name = `${channel} ${account.accountId}`;
  const isOff = account.enabled === false;
  const close = (): void => setAsked(null);
  const finish = (text: string): void => {
    showToast({ tone: 'ok', text });
    onChanged();
  };
  const turn = async (isEnabled: boolean): Promise<void> => {
    await patchConfig((parsed) => switchPatch(parsed, channel, account.accountId, isEnabled));
    finish(`${name} is turned ${isEnabled ? 'on' : 'off'}.`);
  };
  const turnOn = (): void => {
    setBusy(true);
    setError(null);
    turn(true)
      .catch(setError)
      .finally(() => setBusy(false));
  };
  return (
    <>
      <span class="row account-actions">
        <Button small isBusy={isBusy} label={`Turn ${isOff ? 'on' : 'off'} ${name}`} onClick={isOff ? turnOn : () => setAsked('off')}>
          {isOff ? 'Turn on' : 'Turn off'}
        </Button>
        <Button small label={`Log out ${name}`} onClick={() => setAsked('logout')}>
          Log out
        </Button>
        <Button small kind="quiet" icon="trash" label={`Remove ${name}`} onClick={() => setAsked('remove')} />
      </span>
      {error !== null && <ErrorState error={error} />}
      {asked === 'off' && (
        <Confirm title={`Turn off ${name}`} verb="Turn off" onClose={close} onConfirm={() => turn(false)}>
          <p>The account disconnects and answers no messages. Its settings stay, and you can turn it on again.</p>
        </Confirm>
      )}
      {asked === 'logout' && (
        <Confirm
          title="Log out"
          verb="Log out"
          onClose={close}
          onConfirm={async () => {
            await call('channels.logout', { channel, accountId: account.accountId });
            finish(`${name} is logged out.`);
          }}
        >
          <p>
            The account stops and its stored login is deleted. Its settings stay in the config, and it logs in again when
            it is next started.
          </p>
        </Confirm>
      )}
      {asked === 'remove' && (
        <Confirm
          title={`Remove ${name}`}
          verb="Remove account"
          onClose={close}
          onConfirm={async () => {
            await patchConfig((parsed) => removePatch(parsed, channel, account.accountId));
            finish(`${name} is removed.`);
          }}
        >
          <p>
            The account disconnects, and its settings with its password or token are deleted from the config. Conversations
            and bindings stay. This cannot be undone.
          </p>
        </Confirm>
      )}
    </>
  );
}
