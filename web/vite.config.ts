import { defineConfig } from "vite";

// One file an entry, shared code in chunks/, one style sheet; names without hashes, as the pages name them.
export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    outDir: "../src/forerun/dashboard/static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rolldownOptions: {
      input: {
        site: "src/site.ts",
        compare: "src/compare.ts",
        plan: "src/plan.ts",
        glossary: "src/glossary.ts",
        atlas: "src/atlas.ts",
        difference: "src/atlas/difference.ts", // as is this one's, for the tests of what is marked
        formulas: "src/plan/cost.ts", // its exports stay, so that a test can hold them to `forerun plan`
      },
      preserveEntrySignatures: "exports-only",
      output: {
        entryFileNames: "[name].js",
        chunkFileNames: "chunks/[name].js",
        assetFileNames: "site[extname]",
      },
    },
  },
});
