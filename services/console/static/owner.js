// The owner's key in this browser: made here, kept in IndexedDB where not even this page can read it out, used to sign
// in and to sign what the owner decides. A link made on a device (`coterie device link`) brings a secret behind the #;
// with it the device knows this browser's key from any other, and this browser reads the device's sealed notes.
(() => {
  const utf8 = new TextEncoder();
  const WEEK_SECONDS = 7 * 86400;
  const HMAC = { name: "HMAC", hash: "SHA-256" };

  // --- what is kept ---------------------------------------------------------------------------------------------
  const database = () => new Promise((done, fail) => {
    const asked = indexedDB.open("coterie", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("kept");
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => fail(asked.error);
  });
  const kept = async (mode, act) => {
    const store = (await database()).transaction("kept", mode).objectStore("kept");
    return new Promise((done, fail) => {
      const asked = act(store);
      asked.onsuccess = () => done(asked.result);
      asked.onerror = () => fail(asked.error);
    });
  };
  const keep = (name, value) => kept("readwrite", (store) => store.put(value, name));
  const links = async () => (await kept("readonly", (store) => store.get("links"))) || [];
  const forget = async (id) => keep("links", (await links()).filter((each) => each.id !== id));

  // --- bytes and keys -------------------------------------------------------------------------------------------
  const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
  const unbase64 = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const joined = (...parts) => {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
    return whole;
  };
  const hmacKey = (raw) => crypto.subtle.importKey("raw", raw, HMAC, false, ["sign"]);
  const hmac = async (key, content) => new Uint8Array(await crypto.subtle.sign("HMAC", key, content));
  const own = async () => {
    if (!window.crypto || !crypto.subtle) {
      throw new Error("This page needs https: browsers keep no keys for pages that anybody on the way may change.");
    }
    let pair = await kept("readonly", (store) => store.get("key"));
    if (!pair) {
      try {
        pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
      } catch {
        throw new Error("This browser makes no Ed25519 keys; update it, or link another one.");
      }
      await keep("key", pair);
    }
    return pair;
  };
  const signed = async (text) => base64(await crypto.subtle.sign("Ed25519", (await own()).privateKey, utf8.encode(text)));
  const called = () => {
    const agent = navigator.userAgent;
    const find = (pairs) => (pairs.find(([mark]) => agent.includes(mark)) || ["", ""])[1];
    const browser = find([["Firefox/", "Firefox"], ["Edg/", "Edge"], ["Chrome/", "Chromium"], ["Safari/", "Safari"]]);
    const where = find([["Android", "Android"], ["iPhone", "an iPhone"], ["iPad", "an iPad"], ["Windows", "Windows"],
      ["Mac OS", "a Mac"], ["Linux", "Linux"]]);
    return [browser || "a browser", where].filter(Boolean).join(" on ");
  };
  const post = async (path, body) => {
    const answer = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const told = await answer.json().catch(() => ({}));
    if (!answer.ok) throw Object.assign(new Error(told.detail || "The console did not answer as it should."), told);
    return told;
  };
  const session = async (id) => {
    const at = Date.now();
    return { link: id, at_milliseconds: at, signature: await signed(`coterie session 1\n${id}\n${at}`) };
  };

  // --- linking and signing in -----------------------------------------------------------------------------------
  const claim = async (id, secret) => {
    const pair = await own();
    const shared = await hmacKey(secret);
    const under = (label, rest = new Uint8Array()) => hmac(shared, joined(utf8.encode(`coterie link 1 ${label}`), rest));
    const key = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    const sealing = await hmacKey(await under("note"));
    const [hide, tag] = await Promise.all(["hide", "tag"].map(async (use) => hmacKey(await hmac(sealing, utf8.encode(use)))));
    const told = await post("/link", {
      token: base64(await under("token")), browser_key: base64(key), proof: base64(await under("key ", key)),
      name: called(), ...(await session(id)),
    });
    const others = (await links()).filter((each) => each.device !== told.device);
    await keep("links", [{ id, device: told.device, name: told.name, hide, tag, number: 0 }, ...others]);
    location.replace("/me");
  };
  const say = (place, error) => { place.hidden = false; place.textContent = error.message; };

  window.coterieLink = () => {
    const button = document.getElementById("link"), remark = document.getElementById("remark");
    const [id, secret] = location.hash.slice(1).split(".");
    history.replaceState(null, "", "/link"); // the address bar is no place for a secret
    if (!/^lnk_[0-9a-z]+$/.test(id || "") || !secret) {
      return say(remark, new Error("This address is not whole. Copy all of it from the device, also what is behind the #."));
    }
    button.hidden = false;
    button.onclick = async () => {
      button.disabled = true;
      await claim(id, unbase64(secret)).catch((error) => { say(remark, error); button.hidden = true; });
    };
  };

  window.coterieSignIn = async () => {
    const place = document.getElementById("browsers"), remark = document.getElementById("browser-remark");
    for (const each of await links().catch(() => [])) {
      place.hidden = false;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Sign in for ${each.name}`;
      button.onclick = async () => {
        button.disabled = true;
        try {
          await post("/signin/browser", await session(each.id));
          location.replace("/me");
        } catch (error) {
          if (error.reason === "unknown_link" || error.reason === "device_revoked") await forget(each.id);
          say(remark, error);
          button.remove();
        }
      };
      place.insertBefore(button, remark);
    }
  };

  // --- deciding -------------------------------------------------------------------------------------------------
  window.coterieDecide = async (id, decided) => {
    const all = await links(), link = all.find((each) => each.id === id);
    if (!link) return { trouble: "This browser does not hold the key of this link any more; link it again." };
    link.number = Math.max(Date.now(), link.number + 1);
    await keep("links", all);
    const until = Math.floor(Date.now() / 1000) + WEEK_SECONDS;
    const text = JSON.stringify({ ...decided, device: link.device, link: id, number: link.number, until });
    return { text, signature: await signed(`coterie decision 1\n${text}`) };
  };

  // --- what the device tells this browser alone -------------------------------------------------------------------
  const unsealed = async (link, sealed) => {
    const body = sealed.slice(0, -32), tag = await hmac(link.tag, body);
    if (sealed.length < 64 || !tag.every((byte, at) => byte === sealed[sealed.length - 32 + at])) return null;
    const nonce = body.slice(0, 32), content = body.slice(32), counter = new DataView(new ArrayBuffer(4));
    for (let block = 0; block * 32 < content.length; block += 1) {
      counter.setUint32(0, block);
      const stream = await hmac(link.hide, joined(nonce, new Uint8Array(counter.buffer)));
      for (let at = 0; at < 32 && block * 32 + at < content.length; at += 1) content[block * 32 + at] ^= stream[at];
    }
    return JSON.parse(new TextDecoder().decode(content));
  };
  const figure = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "∞");
  const fill = (name, text) => document.querySelectorAll(`[data-note="${name}"]`).forEach((each) => { each.textContent = text; });
  window.coterieNote = async (id, sealed, names) => {
    const link = (await links()).find((each) => each.id === id);
    const told = link && sealed ? await unsealed(link, unbase64(sealed)).catch(() => null) : null;
    const silent = sealed ? "This browser cannot read what the device told; link it again." : "";
    if (!told) return fill("state", silent || "The device has told nothing yet; it does so while it runs.");
    fill("state", `As the device itself said ${new Date(told.at * 1000).toLocaleString()}, sealed for this browser.`);
    fill("paused", told.paused ? "paused: it declines all work" : "works");
    if (told.privacy) {
      const { spent, limit, raw, releases, unit } = told.privacy;
      fill("left", figure(Math.max(0, limit - spent)));
      fill("limit", `of ${figure(limit)} you allow, ${figure(spent)} spent`);
      fill("raw", `${releases} releases with noise and ${raw} without, protecting ${unit === "device" ? "all it holds" : "one example"}`);
    }
    const list = document.querySelector('[data-note="circle"]');
    if (!list) return;
    list.replaceChildren(...told.circle.map((member) => {
      const item = document.createElement("li"), words = document.createElement("span");
      words.className = "c-mono";
      words.textContent = member.words;
      item.append(`${names[member.device] || member.device} `, document.createElement("br"), words);
      return item;
    }));
    fill("alone", told.circle.length ? "" : "Nobody is in it yet: `coterie circle add` on the device takes somebody in.");
  };
})();
