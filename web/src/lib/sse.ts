// Server-sent events read through fetch: an EventSource cannot send the token. The parser is pure; `follow` keeps the
// connection: it backs off, tells its state, and starts anew with what the caller says has been seen.

export interface SseMessage {
  event: string;
  id: string;
  data: string;
}

/** Takes text in any pieces and gives whole messages; comments are passed over. */
export class SseParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id = "";

  push(text: string): SseMessage[] {
    const out: SseMessage[] = [];
    this.rest += text;
    const lines = this.rest.split("\n");
    this.rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line !== "") this.field(line);
      else if (this.data.length > 0 || this.event) {
        out.push({ event: this.event || "message", id: this.id, data: this.data.join("\n") });
        this.event = "";
        this.data = [];
      }
    }
    return out;
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
  }
}

export type Connection = "connecting" | "live" | "lost" | "refused" | "ended";

export interface Follow {
  open: (signal: AbortSignal) => Promise<Response>;
  onMessage: (message: SseMessage) => void;
  onState: (state: Connection) => void;
  onRefused?: (response: Response) => void;
  silence?: number; // milliseconds without a byte after which the line counts as dead
}

const FIRST_WAIT = 250;
const LONGEST_WAIT = 5_000;

/** Follows a stream until the returned function is called; comes back whenever the line breaks. */
export function follow(options: Follow): () => void {
  let stopped = false;
  let abort = new AbortController();
  let wake: () => void = () => undefined;
  const online = (): void => wake();
  globalThis.addEventListener?.("online", online);

  const once = async (): Promise<"again" | "over"> => {
    abort = new AbortController();
    const response = await options.open(abort.signal);
    if (response.status >= 400 && response.status < 500 && response.status !== 429) {
      options.onState("refused");
      options.onRefused?.(response);
      return "over";
    }
    if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
    options.onState("live");
    await read(response.body, options, abort);
    return "again";
  };

  const run = async (): Promise<void> => {
    let wait = FIRST_WAIT;
    options.onState("connecting");
    while (!stopped) {
      const begun = Date.now();
      try {
        if ((await once()) === "over") return;
      } catch {
        // a broken line says nothing that its state does not
      }
      if (stopped) return;
      options.onState("lost");
      if (Date.now() - begun > LONGEST_WAIT) wait = FIRST_WAIT;
      const pause = wait * (0.75 + Math.random() / 2);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      wait = Math.min(wait * 2, LONGEST_WAIT);
    }
  };
  void run();
  return () => {
    stopped = true;
    globalThis.removeEventListener?.("online", online);
    abort.abort();
    wake();
  };
}

async function read(body: ReadableStream<Uint8Array>, options: Follow, abort: AbortController): Promise<void> {
  const parser = new SseParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  const silence = options.silence ?? 45_000;
  let timer = setTimeout(() => abort.abort(), silence);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => abort.abort(), silence);
      for (const message of parser.push(decoder.decode(value, { stream: true }))) options.onMessage(message);
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => undefined);
  }
}
