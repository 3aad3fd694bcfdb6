import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';
import { compressAssets, writeRoutes } from './build-plugins';

const outDir = fileURLToPath(new URL('../src/homarus/gateway/static_ui', import.meta.url));

export default defineConfig({
  // Relative addresses: the UI also works behind a proxy that serves it below a path.
  base: './',
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  build: {
    outDir: process.env.UI_OUT ?? outDir,
    emptyOutDir: true,
    target: 'es2022',
    assetsInlineLimit: 0, // the content security policy allows no `data:` fonts or styles
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rollupOptions: { output: { hashCharacters: 'base36' } },
  },
  plugins: [writeRoutes(), compressAssets()],
  server: { proxy: { '^/$|^/avatar': { target: 'http://127.0.0.1:18789', ws: true } } },
});
