// Tells the server, by cookies, how this browser looks (light or dark) and in which time zone it is; pages are drawn
// for that. The choice itself stays in this browser: "light", "dark", or nothing for the system's own.
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const effective = () => localStorage.getItem("coterie-theme") || (dark.matches ? "dark" : "light");
  const tell = (name, value) => {
    const before = document.cookie.split("; ").find((each) => each.startsWith(name + "="));
    const cookie = `${name}=${encodeURIComponent(value)}`;
    if (before === cookie) return false;
    document.cookie = `${cookie}; path=/; max-age=31536000; samesite=lax`;
    return document.cookie.includes(cookie);
  };
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  const changed = [tell("coterie-theme", effective()), tell("coterie-zone", zone)].some(Boolean);
  document.documentElement.dataset.theme = effective();
  if (changed && document.documentElement.dataset.drawn !== undefined) location.reload();
  dark.addEventListener("change", () => {
    document.documentElement.dataset.theme = effective();
    const drawn = document.documentElement.dataset.drawn !== undefined; // other pages follow by style alone
    if (tell("coterie-theme", effective()) && drawn) location.reload();
  });
  if (document.documentElement.dataset.drawn !== undefined) {
    // A session that ended elsewhere, or with the console's restart, leaves no page behind that looks alive.
    const ask = async () => {
      if (document.hidden) return;
      const answer = await fetch("/session", { cache: "no-store" }).catch(() => null);
      if (answer && answer.ok && !(await answer.json()).signed_in && !window.coterieLeft) {
        window.coterieLeft = true;
        location.href = `/signin?why=${encodeURIComponent("Your session has ended.")}&next=${encodeURIComponent(location.pathname)}`;
      }
    };
    setInterval(ask, 20000);
    document.addEventListener("visibilitychange", ask);
  }
  window.coterieToggleTheme = () => {
    localStorage.setItem("coterie-theme", effective() === "dark" ? "light" : "dark");
    tell("coterie-theme", effective());
    location.reload();
  };
})();
