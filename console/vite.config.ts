// SPDX-License-Identifier: Apache-2.0
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

// While developing, everything that is not the page goes to a control plane: PIPECD_ADDRESS=http://127.0.0.1:8080 npm run dev
const server = process.env.PIPECD_ADDRESS ?? 'http://127.0.0.1:8080'
const proxied = { target: server, changeOrigin: true }

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: 'dist',
    // Nothing may be inlined: the policy of the page allows files of its own server alone.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    target: 'es2022',
  },
  worker: { format: 'es' },
  server: {
    proxy: {
      '/grpc.service.': proxied,
      '/pipecd.': proxied,
      '/auth/': proxied,
      '/console/': proxied,
    },
  },
})
