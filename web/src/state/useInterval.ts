import { useEffect } from 'preact/hooks';
import { isConnected } from '../gateway/gateway';

/** Call a function again and again while the component is shown, the tab visible and the gateway connected. */
export function useInterval(run: () => void, intervalMs: number): void {
  useEffect(() => {
    const timer = setInterval(() => {
      if (document.visibilityState === 'visible' && isConnected.peek()) run();
    }, intervalMs);
    return () => clearInterval(timer);
  }, [run, intervalMs]);
}
