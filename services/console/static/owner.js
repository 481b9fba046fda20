// The owner's key in this browser: created here, stored in IndexedDB as not extractable, and used to sign in and to sign
// decisions. The address of a link (`coterie device link`) has a secret after the #. With it, the device authenticates
// this browser's key, and this browser decrypts the device's sealed notes.
(() => {
  const utf8 = new TextEncoder();
  const WEEK_SECONDS = 7 * 86400;
  const HMAC = { name: "HMAC", hash: "SHA-256" };

  // --- storage ----------------------------------------------------------------------------------------------------
  const openDatabase = () => new Promise((resolve, reject) => {
    const request = indexedDB.open("coterie", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("values");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const access = async (mode, action) => {
    const store = (await openDatabase()).transaction("values", mode).objectStore("values");
    return new Promise((resolve, reject) => {
      const request = action(store);
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  };
  const load = (name) => access("readonly", (store) => store.get(name));
  const save = (name, value) => access("readwrite", (store) => store.put(value, name));
  const loadLinks = async () => (await load("links")) || [];
  const forgetLink = async (id) => save("links", (await loadLinks()).filter((link) => link.id !== id));

  // --- bytes and keys -------------------------------------------------------------------------------------------
  const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
  const unbase64 = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const concat = (...parts) => {
    const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
    return whole;
  };
  const hmacKey = (raw) => crypto.subtle.importKey("raw", raw, HMAC, false, ["sign"]);
  const hmac = async (key, content) => new Uint8Array(await crypto.subtle.sign("HMAC", key, content));
  const ownKey = async () => {
    if (!window.crypto || !crypto.subtle) {
      throw new Error("This page needs https: browsers store keys only for pages that cannot be changed in transit.");
    }
    let pair = await load("key");
    if (!pair) {
      try {
        pair = await crypto.subtle.generateKey({ name: "Ed25519" }, false, ["sign", "verify"]);
      } catch {
        throw new Error("This browser does not support Ed25519 keys. Update it or link another browser.");
      }
      await save("key", pair);
    }
    return pair;
  };
  const sign = async (text) => base64(await crypto.subtle.sign("Ed25519", (await ownKey()).privateKey, utf8.encode(text)));
  const browserName = () => {
    const agent = navigator.userAgent;
    const find = (pairs) => (pairs.find(([mark]) => agent.includes(mark)) || ["", ""])[1];
    const browser = find([["Firefox/", "Firefox"], ["Edg/", "Edge"], ["Chrome/", "Chromium"], ["Safari/", "Safari"]]);
    const where = find([["Android", "Android"], ["iPhone", "an iPhone"], ["iPad", "an iPad"], ["Windows", "Windows"],
      ["Mac OS", "a Mac"], ["Linux", "Linux"]]);
    return [browser || "a browser", where].filter(Boolean).join(" on ");
  };
  const post = async (path, body) => {
    const response = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const payload = await response.json().catch(() => ({}));
    if (!response.ok) throw Object.assign(new Error(payload.detail || "The console sent an unexpected response. Try again."), payload);
    return payload;
  };
  const newSession = async (id) => {
    const at = Date.now();
    return { link: id, at_milliseconds: at, signature: await sign(`coterie session 1\n${id}\n${at}`) };
  };

  // --- linking and signing in -----------------------------------------------------------------------------------
  const claim = async (id, secret) => {
    const pair = await ownKey();
    const shared = await hmacKey(secret);
    const under = (label, rest = new Uint8Array()) => hmac(shared, concat(utf8.encode(`coterie link 1 ${label}`), rest));
    const key = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
    const sealing = await hmacKey(await under("note"));
    const [hide, tag] = await Promise.all(["hide", "tag"].map(async (use) => hmacKey(await hmac(sealing, utf8.encode(use)))));
    const device = await post("/link", {
      token: base64(await under("token")), browser_key: base64(key), proof: base64(await under("key ", key)),
      name: browserName(), ...(await newSession(id)),
    });
    const others = (await loadLinks()).filter((link) => link.device !== device.device);
    await save("links", [{ id, device: device.device, name: device.name, hide, tag, number: 0 }, ...others]);
    location.replace("/me");
  };
  const showError = (element, error) => { element.hidden = false; element.textContent = error.message; };

  window.coterieLink = () => {
    const button = document.getElementById("link"), remark = document.getElementById("remark");
    const [id, secret] = location.hash.slice(1).split(".");
    history.replaceState(null, "", "/link"); // remove the secret from the address bar
    if (!/^lnk_[0-9a-z]+$/.test(id || "") || !secret) {
      return showError(remark, new Error("This address is incomplete. Copy all of it from the device, including the part after the #."));
    }
    button.hidden = false;
    button.onclick = async () => {
      button.disabled = true;
      await claim(id, unbase64(secret)).catch((error) => { showError(remark, error); button.hidden = true; });
    };
  };

  window.coterieSignIn = async () => {
    const place = document.getElementById("browsers"), remark = document.getElementById("browser-remark");
    for (const link of await loadLinks().catch(() => [])) {
      place.hidden = false;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = `Sign in for ${link.name}`;
      button.onclick = async () => {
        button.disabled = true;
        try {
          await post("/signin/browser", await newSession(link.id));
          location.replace("/me");
        } catch (error) {
          if (error.reason === "unknown_link" || error.reason === "device_revoked") await forgetLink(link.id);
          showError(remark, error);
          button.remove();
        }
      };
      place.insertBefore(button, remark);
    }
  };

  // --- deciding -------------------------------------------------------------------------------------------------
  window.coterieDecide = async (id, decision) => {
    const links = await loadLinks(), link = links.find((item) => item.id === id);
    if (!link) return { trouble: "This browser no longer has the key of this link. Link it again." };
    link.number = Math.max(Date.now(), link.number + 1);
    await save("links", links);
    const until = Math.floor(Date.now() / 1000) + WEEK_SECONDS;
    const text = JSON.stringify({ ...decision, device: link.device, link: id, number: link.number, until });
    return { text, signature: await sign(`coterie decision 1\n${text}`) };
  };

  // --- sealed notes of the device ---------------------------------------------------------------------------------
  const unseal = async (link, sealed) => {
    const body = sealed.slice(0, -32), tag = await hmac(link.tag, body);
    if (sealed.length < 64 || !tag.every((byte, at) => byte === sealed[sealed.length - 32 + at])) return null;
    const nonce = body.slice(0, 32), content = body.slice(32), counter = new DataView(new ArrayBuffer(4));
    for (let block = 0; block * 32 < content.length; block += 1) {
      counter.setUint32(0, block);
      const stream = await hmac(link.hide, concat(nonce, new Uint8Array(counter.buffer)));
      for (let at = 0; at < 32 && block * 32 + at < content.length; at += 1) content[block * 32 + at] ^= stream[at];
    }
    return JSON.parse(new TextDecoder().decode(content));
  };
  const figure = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "∞");
  const fill = (name, text) => document.querySelectorAll(`[data-note="${name}"]`).forEach((element) => { element.textContent = text; });
  window.coterieNote = async (id, sealed, names) => {
    const link = (await loadLinks()).find((item) => item.id === id);
    const note = link && sealed ? await unseal(link, unbase64(sealed)).catch(() => null) : null;
    const problem = sealed ? "This browser cannot decrypt the device's note. Link it again." : "";
    if (!note) return fill("state", problem || "The device has not sent a note yet; it sends one while it runs.");
    fill("state", `Reported by the device on ${new Date(note.at * 1000).toLocaleString()}, sealed for this browser.`);
    fill("paused", note.paused ? "paused: it declines all work" : "active");
    if (note.privacy) {
      const { spent, limit, raw, releases, unit } = note.privacy;
      fill("left", figure(Math.max(0, limit - spent)));
      fill("limit", `of your limit ${figure(limit)}, ${figure(spent)} spent`);
      fill("raw", `${releases} releases with noise and ${raw} without, protecting ${unit === "device" ? "all its data" : "one example"}`);
    }
    const list = document.querySelector('[data-note="circle"]');
    if (!list) return;
    list.replaceChildren(...note.circle.map((member) => {
      const item = document.createElement("li"), words = document.createElement("span");
      words.className = "c-mono";
      words.textContent = member.words;
      item.append(`${names[member.device] || member.device} `, document.createElement("br"), words);
      return item;
    }));
    fill("alone", note.circle.length ? "" : "The circle is empty. Add a device with `coterie circle add` on this one.");
  };
})();
