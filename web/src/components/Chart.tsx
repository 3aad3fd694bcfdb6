import './Chart.css';
import type { JSX } from 'preact';

export interface Point {
  label: string;
  value: number;
}

interface Props {
  kind: 'bar' | 'line';
  points: readonly Point[];
  /** What is drawn, for screen readers. */
  label: string;
  format?: (value: number) => string;
}

const WIDTH = 600;
const HEIGHT = 120;
const GAP = 0.2;

/** A small chart of one series. Screen readers get it as a table. */
export function Chart({ kind, points, label, format = String }: Props): JSX.Element {
  const max = Math.max(...points.map(({ value }) => value), Number.EPSILON);
  const step = WIDTH / Math.max(1, points.length);
  const top = (value: number): number => HEIGHT - (value / max) * (HEIGHT - 4);
  const first = points[0];
  const last = points.at(-1);
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        {kind === 'bar' ? (
          points.map(({ label: name, value }, at) => (
            <rect
              key={name}
              x={at * step + (step * GAP) / 2}
              width={step * (1 - GAP)}
              y={top(value)}
              height={HEIGHT - top(value)}
            >
              <title>{`${name}: ${format(value)}`}</title>
            </rect>
          ))
        ) : (
          <polyline points={points.map(({ value }, at) => `${(at + 0.5) * step},${top(value)}`).join(' ')} />
        )}
      </svg>
      {first && last && (
        <figcaption aria-hidden="true">
          <span>{first.label}</span>
          {last !== first && <span>{last.label}</span>}
        </figcaption>
      )}
      <table class="visually-hidden">
        <caption>{label}</caption>
        <tbody>
          {points.map(({ label: name, value }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{format(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </figure>
  );
}
