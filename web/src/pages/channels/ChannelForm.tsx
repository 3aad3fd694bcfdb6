import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { Dialog } from '../../components/Dialog';
import { ErrorState } from '../../components/ErrorState';
import { Field } from '../../components/Field';
import { Loading } from '../../components/Loading';
import { useRequest } from '../../gateway/useRequest';
import { oneLine } from '../../markdown/text';
import { showToast } from '../../state/toasts';
import { patchConfig } from '../patchConfig';
import { accountPatch } from './accountPatches';
import { accountValues, readServices } from './fields';
import { SettingField } from './SettingField';

interface Props {
  onClose: () => void;
  onSaved: () => void;
}

/** Add an account of a chat service; the fields come from the schema of the config. */
export function ChannelForm({ onClose, onSaved }: Props): JSX.Element {
  const schema = useRequest('config.schema', {});
  const [serviceId, setServiceId] = useState('telegram');
  const [account, setAccount] = useState('default');
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const services = useMemo(() => (schema.data ? readServices(schema.data.schema) : []), [schema.data]);
  const service = services.find((one) => one.id === serviceId) ?? services[0];
  const save = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (!service) return;
    setBusy(true);
    setFailure(null);
    try {
      const values = accountValues([...service.first, ...service.more], texts);
      await patchConfig((parsed) => accountPatch(parsed, service.id, account.trim() || 'default', values));
      showToast({ tone: 'ok', text: `${service.label} is added. Check its login here.` });
      onSaved();
      onClose();
    } catch (reason) {
      setFailure(reason);
      setBusy(false);
    }
  };
  const { error } = schema;
  return (
    <Dialog title="Add channel" onClose={onClose}>
      {error !== null && <ErrorState error={error} onRetry={schema.reload} />}
      {!schema.data && error === null && <Loading />}
      {service && (
        <form class="stack" onSubmit={(event) => void save(event)}>
          <Field label="Service">
            {(ids) => (
              <select
                class="input"
                {...ids}
                value={service.id}
                onChange={(event) => {
                  setServiceId(event.currentTarget.value);
                  setTexts({});
                }}
              >
                {services.map((one) => (
                  <option key={one.id} value={one.id}>
                    {oneLine(one.label, 40)}
                  </option>
                ))}
              </select>
            )}
          </Field>
          {service.first.map((field) => (
            <SettingField
              key={`${service.id}.${field.key}`}
              field={field}
              value={texts[field.key] ?? ''}
              onChange={(text) => setTexts((old) => ({ ...old, [field.key]: text }))}
            />
          ))}
          <details class="channel-more">
            <summary>More settings</summary>
            <div class="stack">
              <Field label="Account name" hint="A second account of the same service needs another name.">
                {(ids) => (
                  <input
                    class="input mono"
                    pattern="[A-Za-z0-9_\-]+"
                    {...ids}
                    value={account}
                    onInput={(event) => setAccount(event.currentTarget.value)}
                  />
                )}
              </Field>
              {service.more.map((field) => (
                <SettingField
                  key={`${service.id}.${field.key}`}
                  field={field}
                  value={texts[field.key] ?? ''}
                  onChange={(text) => setTexts((old) => ({ ...old, [field.key]: text }))}
                />
              ))}
            </div>
          </details>
          {failure !== null && <ErrorState error={failure} />}
          <div class="row channel-submit">
            <Button onClick={onClose}>Cancel</Button>
            <Button kind="primary" type="submit" isBusy={isBusy}>
              Add channel
            </Button>
          </div>
        </form>
      )}
    </Dialog>
  );
}
