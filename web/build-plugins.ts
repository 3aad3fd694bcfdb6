import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'vite';

const PAGES = fileURLToPath(new URL('./src/pages/index.ts', import.meta.url));
const COMPRESSED = /\.(?:js|css|html|svg)$/;
const MIN_BYTES = 500;

/** Write the paths of the pages, which are the addresses where the gateway serves the UI. */
export function writeRoutes(): Plugin {
  let folder = '';
  return {
    name: 'homarus-routes',
    apply: 'build',
    configResolved: (config) => {
      folder = config.build.outDir;
    },
    closeBundle: () => {
      const source = readFileSync(PAGES, 'utf8');
      const paths = [...source.matchAll(/\bpath: '([a-z-]+)'/g)].map(([, path]) => path);
      writeFileSync(join(folder, 'routes.txt'), `${paths.join('\n')}\n`);
    },
  };
}

/** Compress every file once, so that the gateway never has to. */
export function compressAssets(): Plugin {
  let folder = '';
  return {
    name: 'homarus-compress',
    apply: 'build',
    configResolved: (config) => {
      folder = config.build.outDir;
    },
    closeBundle: () => {
      for (const entry of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
        if (!COMPRESSED.test(entry)) continue;
        const file = join(folder, entry);
        const data = readFileSync(file);
        if (data.length < MIN_BYTES) continue;
        writeFileSync(`${file}.gz`, gzipSync(data, { level: constants.Z_BEST_COMPRESSION }));
      }
    },
  };
}
