// The device's folder: keys, who it is, what it is about to send. Readable by its owner alone, replaced whole.

import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { closeSync, existsSync, fsyncSync, mkdirSync, openSync, readFileSync, readdirSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";

export interface Prepared {
  report: string;
  body: Buffer;
}

export class Home {
  constructor(readonly folder: string) {
    mkdirSync(join(folder, "outbox"), { recursive: true, mode: 0o700 });
  }

  read(name: string): string | null {
    const path = join(this.folder, name);
    return existsSync(path) ? readFileSync(path, "utf8") : null;
  }

  /** On disk when this returns; a crash leaves the old file or the new one. */
  write(name: string, content: string | Buffer): void {
    const path = join(this.folder, name);
    const file = openSync(`${path}.new`, "w", 0o600);
    try {
      const bytes = Buffer.from(content);
      for (let at = 0; at < bytes.length; ) at += writeSync(file, bytes, at);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(`${path}.new`, path);
  }

  /** What was prepared for a round from the same work, if it is whole. */
  prepared(task: string, round: number, basis: string): Prepared | null {
    const report = this.read(`outbox/${task}.${round}.${basis}.json`);
    const path = join(this.folder, `outbox/${task}.${round}.${basis}.update`);
    return report === null || !existsSync(path) ? null : { report, body: readFileSync(path) };
  }

  keep(task: string, round: number, basis: string, prepared: Prepared): void {
    this.write(`outbox/${task}.${round}.${basis}.update`, prepared.body);
    this.write(`outbox/${task}.${round}.${basis}.json`, prepared.report); // last: with it, all is there
  }

  forgetBefore(task: string, round: number): void {
    for (const name of readdirSync(join(this.folder, "outbox")))
      if (name.startsWith(`${task}.`) && Number(name.slice(task.length + 1).split(".")[0]) < round) rmSync(join(this.folder, "outbox", name));
  }

  /** The key of this kind, made on the first call: "ed25519" signs, "x25519" would open letters. */
  key(kind: "ed25519" | "x25519"): KeyObject {
    const known = this.read(`${kind}.pem`);
    if (known !== null) return createPrivateKey(known);
    const made = kind === "ed25519" ? generateKeyPairSync("ed25519") : generateKeyPairSync("x25519");
    this.write(`${kind}.pem`, made.privateKey.export({ type: "pkcs8", format: "pem" }));
    return made.privateKey;
  }
}

/** The 32 bytes of a public key: the end of its DER. */
export function rawPublic(key: KeyObject): Buffer {
  return createPublicKey(key).export({ type: "spki", format: "der" }).subarray(-32);
}

/** What a device sends to register: its public keys, and the sealing key signed by the signing key. */
export function registration(home: Home, token: string, name: string): Record<string, string> {
  const signing = home.key("ed25519");
  const sealing = rawPublic(home.key("x25519"));
  return {
    token,
    name,
    signing_key: rawPublic(signing).toString("base64"),
    sealing_key: sealing.toString("base64"),
    proof: sign(null, sealing, signing).toString("base64"),
  };
}

export const sha256 = (data: Buffer | string): string => createHash("sha256").update(data).digest("hex");
