// Takes the addresses out of package-lock.json: a lock names versions and hashes, not the mirror of whoever made it.
import { readFileSync, writeFileSync } from "node:fs";

const path = new URL("../package-lock.json", import.meta.url);
const lock = JSON.parse(readFileSync(path, "utf8"));
for (const entry of Object.values(lock.packages)) delete entry.resolved;
writeFileSync(path, `${JSON.stringify(lock, null, 2)}\n`);
