import './Devices.css';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { Badge } from '../../components/Badge';
import { Card } from '../../components/Card';
import { ErrorState } from '../../components/ErrorState';
import { Loading } from '../../components/Loading';
import { Page } from '../../components/Page';
import { onEvent } from '../../gateway/gateway';
import { useRequest } from '../../gateway/useRequest';
import { DeviceRequest } from './DeviceRequest';
import { NodesCard } from './NodesCard';
import { PairedDevices } from './PairedDevices';
import { PresenceCard } from './PresenceCard';

/** Devices that wait for an approval, those that have one, and who is connected. */
export default function DevicesPage(): JSX.Element {
  const { data, error, isLoading, reload } = useRequest('device.pair.list', {});
  useEffect(() => onEvent('device.pair.requested', reload), [reload]);
  useEffect(() => onEvent('device.pair.resolved', reload), [reload]);
  return (
    <Page
      title="Devices"
      aside={data && data.pending.length > 0 && <Badge tone="warn">{data.pending.length} waiting</Badge>}
    >
      <div class="stack column">
        {error !== null && <ErrorState error={error} onRetry={reload} />}
        {isLoading && !data && <Loading />}
        {data && data.pending.length > 0 && (
          <Card title="Waiting for approval">
            <ul class="devices-list">
              {data.pending.map((request) => (
                <DeviceRequest key={request.requestId} request={request} onResolved={reload} />
              ))}
            </ul>
          </Card>
        )}
        {data && (
          <Card title="Paired devices" aside={<Badge>{data.paired.length}</Badge>}>
            <PairedDevices devices={data.paired} onChanged={reload} />
          </Card>
        )}
        <PresenceCard />
        <NodesCard />
      </div>
    </Page>
  );
}
