// One request, made until it is answered: pauses with jitter, Retry-After, limits, and never a redirect.

const TRY_LATER = new Set([429, 502, 503, 504]);
const MOST_RETRY_AFTER_SECONDS = 30;
export const MOST_JSON_BYTES = 16 << 20;

export interface Answer {
  status: number;
  body: Buffer;
}

export class TooMuch extends Error {}

export const pause = (seconds: number): Promise<void> => new Promise((done) => setTimeout(done, 1000 * seconds));

export class Platform {
  constructor(
    readonly url: string,
    readonly apiKey: string = "",
  ) {}

  /** The answer, whatever its status; more than `most` bytes of it are `TooMuch`. Every request of a device is safe to repeat. */
  async ask(method: string, path: string, options: { json?: unknown; body?: Buffer; headers?: Record<string, string>; most?: number } = {}): Promise<Answer> {
    const headers: Record<string, string> = { ...options.headers };
    if (this.apiKey) headers["Authorization"] = `Bearer ${this.apiKey}`;
    if (options.json !== undefined) headers["Content-Type"] = "application/json";
    if (options.body !== undefined) headers["Content-Type"] = "application/octet-stream";
    const body = options.json !== undefined ? JSON.stringify(options.json) : options.body;
    for (let longest = 0.1; ; longest = Math.min(5, 2 * longest)) {
      let wait = longest * (0.5 + 0.5 * Math.random());
      try {
        const response = await fetch(this.url + path, {
          method,
          headers,
          redirect: "manual", // the key would go elsewhere
          signal: AbortSignal.timeout(60_000),
          ...(body === undefined ? {} : { body }),
        });
        const content = await within(response, options.most ?? MOST_JSON_BYTES);
        if (!TRY_LATER.has(response.status)) return { status: response.status, body: content };
        const asked = Number(response.headers.get("retry-after") ?? 0);
        if (asked > 0) wait = Math.max(wait, Math.min(MOST_RETRY_AFTER_SECONDS, asked));
      } catch (error) {
        if (error instanceof TooMuch) throw error;
        console.error(`${method} ${path}: ${error instanceof Error ? error.message : error}`);
      }
      await pause(wait);
    }
  }
}

async function within(response: Response, most: number): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  while (reader) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.byteLength;
    if (size > most) {
      await reader.cancel();
      throw new TooMuch(`more than ${most} bytes came`);
    }
    pieces.push(value);
  }
  return Buffer.concat(pieces);
}

/** A JSON object, or null where the answer is a refusal or none. */
export function objectOf(answer: Answer): Record<string, unknown> | null {
  if (answer.status < 200 || answer.status >= 300) return null;
  try {
    const found: unknown = JSON.parse(answer.body.toString("utf8"));
    return isObject(found) ? found : null;
  } catch {
    return null;
  }
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a refusal says. */
export function why(answer: Answer): string {
  try {
    const problem: unknown = JSON.parse(answer.body.toString("utf8"));
    if (isObject(problem) && typeof problem["detail"] === "string") return problem["detail"];
  } catch {
    // no problem+json: the status says it
  }
  return `the platform answered ${answer.status}`;
}
