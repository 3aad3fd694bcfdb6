import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../../components/Button';
import { showToast } from '../../state/toasts';
import { formatCountdown } from '../../state/format';

const TYPES = ['audio/ogg;codecs=opus', 'audio/mp4', 'audio/webm;codecs=opus'];
const MAX_MS = 5 * 60_000;

// A plain HTTP page has no microphone, and some browsers no recorder.
const isSupported = 'MediaRecorder' in globalThis && 'mediaDevices' in navigator;

/** Record a voice note, which is attached when the recording is stopped. */
export function VoiceButton({ onRecorded }: { onRecorded: (file: File) => void }): JSX.Element | null {
  const recorder = useRef<MediaRecorder | null>(null);
  const [startedAtMs, setStarted] = useState(0);
  const [now, setNow] = useState(0);
  useEffect(() => {
    if (!startedAtMs) return undefined;
    const timer = setInterval(() => setNow(Date.now()), 500);
    const limit = setTimeout(() => recorder.current?.stop(), MAX_MS);
    return () => {
      clearInterval(timer);
      clearTimeout(limit);
    };
  }, [startedAtMs]);
  const isAsking = useRef(false);
  const isGone = useRef(false);
  useEffect(
    () => () => {
      isGone.current = true;
      recorder.current?.stop();
    },
    [],
  );
  if (!isSupported) return null;
  const start = async (): Promise<void> => {
    if (isAsking.current) return; // the browser is still asking the person
    isAsking.current = true;
    const stream = await navigator.mediaDevices.getUserMedia({ audio: true }).finally(() => {
      isAsking.current = false;
    });
    if (isGone.current) {
      for (const track of stream.getTracks()) track.stop();
      return;
    }
    const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
    const made = new MediaRecorder(stream, mimeType ? { mimeType } : {});
    const pieces: Blob[] = [];
    made.ondataavailable = ({ data }) => pieces.push(data);
    made.onstop = () => {
      for (const track of stream.getTracks()) track.stop();
      recorder.current = null;
      setStarted(0);
      const type = made.mimeType.split(';')[0] ?? 'audio/webm';
      if (pieces.some(({ size }) => size > 0)) onRecorded(new File(pieces, `voice-note.${type.split('/')[1] ?? 'webm'}`, { type }));
    };
    recorder.current = made;
    made.start();
    setStarted(Date.now());
    setNow(Date.now());
  };
  if (startedAtMs)
    return (
      <Button kind="danger" small icon="stop" onClick={() => recorder.current?.stop()}>
        Stop recording {formatCountdown((now - startedAtMs) / 1000)}
      </Button>
    );
  return (
    <Button
      kind="quiet"
      icon="mic"
      label="Record a voice note"
      onClick={() => {
        start().catch(() => showToast({ tone: 'bad', text: 'The browser gives no access to a microphone.' }));
      }}
    />
  );
}
