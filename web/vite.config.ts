import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// Libraries change less often than the page, and the graph's are not needed for the list of runs.
function chunkOf(id: string): string | undefined {
  if (!id.includes("node_modules")) return undefined;
  return /node_modules\/(react|react-dom|scheduler)\//.test(id) ? "react" : "graph";
}

// Everything the page needs is in the build: no address of another server, no inline script or style (the server's
// content policy forbids them), and a hash of its content in every file name, so that browsers may keep files for ever.
export default defineConfig({
  plugins: [react()],
  base: "./",
  build: {
    outDir: "../src/rerail/server/page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    target: "es2022",
    rollupOptions: { output: { manualChunks: chunkOf } },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8765" } },
  test: { include: ["tests/**/*.test.ts"], environment: "node", css: true },
});
