import type { JSX } from 'preact';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { useRequest } from '../../gateway/useRequest';
import './Config.css';
import { ConfigEditor } from './ConfigEditor';

/** The settings of the gateway: a form, the text, and a review of each change. */
export default function ConfigPage(): JSX.Element {
  const view = useRequest('config.get', {});
  const schema = useRequest('config.schema', {});
  const error = view.data ? (schema.data ? null : schema.error) : view.error;
  if (view.data && schema.data)
    return (
      <ConfigEditor
        view={view.data}
        schema={schema.data.schema}
        hints={schema.data.uiHints}
        onReload={view.reload}
      />
    );
  return (
    <Page title="Config">
      {error === null ? <Loading /> : <ErrorState error={error} onRetry={view.error === null ? schema.reload : view.reload} />}
    </Page>
  );
}
